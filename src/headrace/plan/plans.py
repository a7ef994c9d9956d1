"""The plans of operators: one streaming query of Spark, or rounds with state in the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.log import Log
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.batch import Payload, Shapes, Sink, StepBatch
from headrace.plan.compile import Compiler, placed
from headrace.plan.crash_points import CrashPoint
from headrace.plan.lateness import Closing
from headrace.plan.position import Positions
from headrace.plan.staging import staging_of
from headrace.plan.steps import Step


@dataclass(frozen=True)
class Job:
    """A step, and the session, log and checkpoint that it runs with."""

    spark: SparkSession
    log: Log
    step: Step
    checkpoint: Path

    @property
    def staging(self) -> Path:
        """The folder of results that tasks hand over in files."""
        return staging_of(self.checkpoint)

    @property
    def ordered(self) -> bool:
        """True if rows carry the columns that order them."""
        return self.step.computed.in_order

    def empty(self, source: Source) -> DataFrame:
        """No rows in the columns of a topic, to learn the columns of a step's results."""
        return self.placed(frame_of(self.spark, with_metadata(source).empty_table()), source)

    def placed(self, rows: DataFrame, source: Source) -> DataFrame:
        """Rows of a topic with their event time and, if order matters, the topic's name."""
        return placed(rows, source, ordered=self.ordered)

    def sketch(self) -> Compiler:
        """A compiler over no rows, to learn the columns of streams."""
        return Compiler(self.empty, self.ordered)


class StreamPlan(ABC):
    """A step as one query. Making the plan determines the columns of its results."""

    mode: ClassVar[str] = "append"
    """Spark's output mode: `append` for rows, `update` for changed state."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Spark settings that it needs in addition to those of all plans."""
    shapes: Shapes
    held: timedelta | None = None
    """The delay of Spark's watermark; None if Spark keeps no state that it could evict."""
    closing: Closing | None = None
    """The lateness rule for whole columns; None if no row is ever too late."""
    clears_source: bool = False
    """True if the source itself can drop rows that are too late for all of their windows."""
    ticks: ClassVar[bool] = False
    """True if Spark needs to see time that advances without rows."""
    windows_per_row: int | None = 1
    """Windows per row, if constant."""
    delivers: ClassVar[bool] = False
    """True if the results are rows that the tasks can write to their topic themselves."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abstractmethod
    def streamed(self, compiler: Compiler) -> DataFrame:
        """The streaming part of the step."""

    @abstractmethod
    def results(self, batch: DataFrame, sink: Sink) -> Payload:
        """Compute the results of a batch of the stream."""

    def late(self, compiler: Compiler) -> DataFrame:
        """The late rows among those that a compiler loads."""
        raise TypeError(f"no row is ever too late for step {self.job.step.name!r}")

    def late_without_spark(self, candidates: Mapping[str, pa.Table]) -> pa.Table | None:
        """The late rows among candidates by topic; None if Spark has to find them."""
        return None

    def check(self, start: Positions, end: Positions) -> None:  # noqa: B027
        """Check that a batch can be computed, before anything waits for it."""


def with_metadata(source: Source, *places: str) -> pa.Schema:
    """The columns of a topic, followed by metadata: that of the log, if none is named."""
    assert source.topic.schema is not None
    columns = [field.with_nullable(True) for field in source.topic.schema]
    beside = [*(places or metadata.TYPES), *metadata.times_beside(source.topic)]
    return pa.schema([*columns, *((name, metadata.type_of(name)) for name in beside)])


class RoundPlan(ABC):
    """Computes the results of a step between two positions in the log."""

    shapes: Shapes
    ahead: ClassVar[bool] = False
    """True if a batch can be computed before the one before it is stored."""
    max_rows: ClassVar[int | None] = None
    """The most rows of a topic in a round, if they are held in memory."""

    def begin(self, sink: Sink) -> None:  # noqa: B027 - most find everything in the store
        """Prepare to continue from a sink's position."""

    @abstractmethod
    def batch(
        self, sink: Sink, start: Positions, end: Positions, crash_point: CrashPoint
    ) -> StepBatch[Any]:
        """Compute the results from one position up to another."""

    def ended(self) -> None:  # noqa: B027 - most leave nothing open
        """Release resources: no more batches follow."""
