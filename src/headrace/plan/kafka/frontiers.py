"""The frontiers of a topic's partitions, and the frontier that each row of a batch met.

A partition's frontier is the highest event time of its rows so far. Kafka orders a partition, so
the frontier that a row met follows from the log alone, however batches are cut. A batch begins with
the frontiers that were stored with its position, and goes on from there in a task per partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import PipelineError
from headrace.files import write_note
from headrace.plan import metadata
from headrace.plan.position import Position, Positions
from headrace.plan.python_operators import arrow_column

LOWEST = "_lowest"
"""The lowest frontier of all partitions and topics at the beginning of the batch."""

_FOUND = "_found"
_PROPERTY = "headrace.frontiers"
_TYPE = f"`{metadata.FRONTIER}` bigint, `{LOWEST}` bigint"
_ARROW = (metadata.FRONTIER, LOWEST)
_NOTES_KEPT = 2

Reached = dict[tuple[str, int], int]
"""The highest moment in each partition of some topics."""


@dataclass(frozen=True)
class Frontiers:
    """The frontier of each partition of each topic, at one position."""

    topics: Mapping[str, tuple[int, ...]]

    @staticmethod
    def at(reached: Positions, before: int | None) -> Frontiers:
        """The frontiers stored with a position.

        A position of an earlier version has none: all its partitions had one frontier, `before`.
        """
        none = metadata.NO_FRONTIER if before is None else before
        return Frontiers(
            {
                topic: place.frontiers or (none,) * len(place.offsets)
                for topic, place in reached.items()
            }
        )

    @property
    def lowest(self) -> int:
        """The moment that no row before which is still expected."""
        return min((min(found) for found in self.topics.values()), default=metadata.NO_FRONTIER)

    def before(self, topic: str, partition: int) -> int:
        """The frontier of a partition. One that was added since begins at the lowest."""
        known = self.topics[topic]
        return known[partition] if partition < len(known) else self.lowest

    def after(self, reached: Reached, end: Positions) -> dict[str, Position]:
        """The end of a batch, with the frontiers there."""
        none = metadata.NO_FRONTIER
        return {
            topic: replace(
                place,
                frontiers=tuple(
                    max(self.before(topic, p), reached.get((topic, p), none))
                    for p in range(len(place.offsets))
                ),
            )
            for topic, place in end.items()
        }

    def to_json(self) -> str:
        return json.dumps(dict(self.topics))

    @staticmethod
    def from_json(text: str) -> Frontiers:
        return Frontiers({topic: tuple(found) for topic, found in json.loads(text).items()})

    def set_for_tasks(self, context: SparkContext) -> None:
        """Give them to the tasks of the jobs that this thread starts from now on.

        The plan of a stream is made once, so it cannot contain what is new in each batch.
        """
        context.setLocalProperty(_PROPERTY, self.to_json())

    @staticmethod
    def of_task() -> Frontiers:
        """The frontiers that the driver gave to this task."""
        task = TaskContext.get()
        assert task is not None
        text = task.getLocalProperty(_PROPERTY)
        assert text is not None, "a job over Kafka was started without the frontiers of its batch"
        return Frontiers.from_json(text)


class FrontierNotes:
    """Notes in a checkpoint: the frontiers at which its last batches began.

    After a crash Spark may compute a batch again that is stored already, only for its state. It has
    to judge the rows as it did then, while the store has the frontiers after the batch.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "frontiers"

    def write(self, number: int, frontiers: Frontiers) -> None:
        """Note the frontiers at which a batch begins, durably."""
        write_note(self._folder / str(number), frontiers.to_json())
        (self._folder / str(number - _NOTES_KEPT)).unlink(missing_ok=True)

    def read(self, number: int) -> Frontiers:
        """The frontiers at which a batch began."""
        try:
            return Frontiers.from_json((self._folder / str(number)).read_text())
        except (OSError, ValueError) as error:
            raise PipelineError(
                f"The checkpoint in {self._folder.parent} is damaged: it does not have the "
                f"frontiers at which batch {number} began",
                hint="headrace run --fresh computes everything from the start",
            ) from error


class _Highest(AccumulatorParam[Reached]):
    """Keeps the highest moments. A task that runs twice changes nothing."""

    def zero(self, value: Reached) -> Reached:
        return {}

    def addInPlace(self, value1: Reached, value2: Reached) -> Reached:
        for place, moment in value2.items():
            value1[place] = max(moment, value1.get(place, moment))
        return value1


@dataclass
class Met:
    """Adds to rows the frontier that each met, and tells the driver how far each partition got."""

    context: SparkContext
    _reached: Accumulator[Reached] = field(init=False)

    def __post_init__(self) -> None:
        self._reached = self.context.accumulator({}, _Highest())

    def begin(self, frontiers: Frontiers) -> None:
        """Begin a batch at these frontiers."""
        self._reached.value = {}
        frontiers.set_for_tasks(self.context)

    @property
    def reached(self) -> Reached:
        """The highest moment in each partition among the rows since the batch began."""
        return self._reached.value

    def add(self, rows: DataFrame, topic: str, moment: Column) -> DataFrame:
        """Add the frontier that each row met, and the lowest one of all at the batch's beginning.

        `moment` advances the frontier. A row meets its own moment too, which never makes it late.
        """
        function = _Running(topic, self._reached)
        # Nondeterministic: Spark must not move a filter below it. Filtered rows count, too.
        found = arrow_column(
            function, _TYPE, metadata.PARTITION, metadata.OFFSET, moment.cast("bigint")
        )
        made = [F.col(f"{_FOUND}.{name}").alias(name) for name in _ARROW]
        kept = [f"`{name}`" for name in rows.columns if name != metadata.FRONTIER]
        return rows.withColumn(_FOUND, found).select(*kept, *made)


@dataclass(frozen=True)
class _Running:
    """The running maximum of each partition that a task reads, from its stored frontier on."""

    topic: str
    reached: Accumulator[Reached]

    def __call__(
        self, batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]
    ) -> Iterator[pa.StructArray]:
        frontiers = Frontiers.of_task()
        highest: dict[int, int] = {}
        last: dict[int, int] = {}
        for partitions, offsets, moments in batches:
            places = partitions.to_numpy(zero_copy_only=False)
            order = offsets.to_numpy(zero_copy_only=False)
            times = moments.to_numpy(zero_copy_only=False)
            found = np.empty(len(times), np.int64)
            for partition in np.unique(places).tolist():
                mine = np.flatnonzero(places == partition)
                here = order[mine]
                if (np.diff(here, prepend=last.get(partition, -1)) <= 0).any():
                    raise AssertionError(
                        f"rows of partition {partition} of {self.topic!r} are out of order"
                    )
                start = highest.get(partition)
                start = frontiers.before(self.topic, partition) if start is None else start
                running = np.maximum(np.maximum.accumulate(times[mine]), start)
                found[mine] = running
                highest[partition], last[partition] = int(running[-1]), int(here[-1])
            lowest = pa.array(np.full(len(times), frontiers.lowest))
            yield pa.StructArray.from_arrays([pa.array(found), lowest], _ARROW)
        self.reached.add({(self.topic, p): moment for p, moment in highest.items()})
