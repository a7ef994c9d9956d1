"""The life cycle of a running step: wait for its end, stop it, and translate its failure.

A `Runner` works in the background: a streaming query of Spark (`Streaming`), or rounds of our own.
"""

from __future__ import annotations

import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace import errors
from headrace.errors import HeadraceError, PipelineFailed
from headrace.runtime.checkpoint import Checkpoint
from headrace.runtime.session import set_meanwhile
from headrace.runtime.spark_internals import await_end

Batch = Callable[[DataFrame, int], None]
"""A function that stores a batch, given its frame and its number."""


class Runner(ABC):
    """Work in the background. Errors call it by its `name`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name
        self._error: BaseException | None = None
        """The error that our own code raised in it."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """True if it ends by itself within so many seconds. Its failure is raised."""

    @abstractmethod
    def stop(self) -> None:
        """Stop, when the current batch is done or aborted."""

    @property
    def progress(self) -> Mapping[str, Any]:
        """Spark's progress report on the last batch; empty if there is none."""
        return {}

    def _failure(self, error: BaseException) -> BaseException:
        """The error to raise: an abort, or the gap in the log that caused the failure, or that."""
        if self._error is not None and not isinstance(self._error, Exception):
            return self._error
        return self._gap() or self._translated(error)

    @abstractmethod
    def _gap(self) -> HeadraceError | None:
        """The gap in the log after its position, if there is one."""

    @abstractmethod
    def _translated(self, error: BaseException) -> HeadraceError:
        """A failure as an error of headrace."""


class Streaming(Runner):
    """A streaming query of Spark, with its checkpoint."""

    def __init__(self, spark: SparkSession, name: str, query_name: str, checkpoint: Path) -> None:
        super().__init__(spark, name)
        self._query_name = query_name
        self._checkpoint = Checkpoint(checkpoint)
        self._query: StreamingQuery | None = None

    def wait(self, seconds: float) -> bool:
        try:
            ended = await_end(self._started_query, seconds)
            self._observe(ended=ended)
        except StreamingQueryException as error:
            raise self._failure(error) from self._error
        except (Py4JError, OSError) as error:
            raise java_is_gone(self.name) from error
        return ended

    def stop(self) -> None:
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()
                self._observe(ended=True)

    @property
    def progress(self) -> Mapping[str, Any]:
        last = self._query.lastProgress if self._query is not None else None
        return json.loads(last.json) if last is not None else {}

    @property
    def _started_query(self) -> StreamingQuery:
        assert self._query is not None
        return self._query

    def _observe(self, *, ended: bool) -> None:
        """Look at the query, in each wait and when it has ended."""

    def _start(
        self, write: Callable[[], DataStreamWriter], settings: Mapping[str, str] | None = None
    ) -> None:
        """Start the query that `write` makes, with some Spark settings of its own."""
        self._error = None
        try:
            location = str(self._checkpoint.path)
            writer = write().queryName(self._query_name).option("checkpointLocation", location)
            with set_meanwhile(self._spark, settings or {}):
                self._query = writer.start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None

    def _in_batches(
        self, frame: DataFrame, batch: Batch, *, until_caught_up: bool
    ) -> DataStreamWriter:
        """A writer that stores a stream batch by batch, and notes what a batch raises."""

        def store(frame: DataFrame, number: int) -> None:
            try:
                batch(frame, number)
            except Exception as error:
                self._error = error
                raise
            except BaseException as error:
                self._error = error
                # Spark waits for an answer, and only an `Exception` is one.
                raise PipelineFailed(f"The batch was aborted: {error!r}") from error

        writer = frame.writeStream.foreachBatch(store)
        return writer.trigger(availableNow=True) if until_caught_up else writer

    def _translated(self, error: BaseException) -> HeadraceError:
        return failure_of(self.name, self._checkpoint.path, self._error, error)


_DEATHS = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "crashed",
    "Connection reset",
    "EOFException",
    "Stream closed",
    "Broken pipe",
    "ExecutorLostFailure",
    "FetchFailed",
)
"""Texts of Spark that mean that a Python worker or an executor died."""


_BAD_DATA = r"SQLSTATE: 22\d"
"""Texts of Spark for an expression that fails on a value, as in a cast or a division."""


def failure_of(
    step: str, checkpoint: Path | None, ours: BaseException | None, sparks: BaseException
) -> HeadraceError:
    """The error to raise: from what our batch function raised, or else from what Spark says.

    Its detail `by_chance` is True if a restart may get past it.
    """
    if isinstance(ours, HeadraceError):
        return ours
    text = str(ours or sparks)
    if (raised := _raised_by_worker(text)) is not None:
        return raised
    if re.search(_BAD_DATA, text):
        return PipelineFailed(
            f"Step {step!r} failed: {_first_line(text)}",
            hint="An expression failed on a row of the log. Correct it, or let it return null with "
            "try_cast, try_divide or a CASE, and run it again",
            by_chance=False,
        )
    hint = "Stored results are intact. Run it again to resume."
    if checkpoint is not None:
        hint += (
            f" If it fails again at once, {checkpoint} may be damaged: without it, "
            "everything is computed again from the log"
        )
    return PipelineFailed(
        f"Step {step!r} failed: {_first_line(text)}",
        hint=hint,
        by_chance=ours is None or any(death in text for death in _DEATHS),
    )


def java_is_gone(step: str) -> PipelineFailed:
    """The error for a Spark that no longer answers."""
    return PipelineFailed(
        f"Step {step!r} failed: the Java process that Spark runs in is gone",
        hint="Was it killed, or out of memory? Run it again to resume",
    )


def _raised_by_worker(text: str) -> HeadraceError | None:
    """The error of headrace that a worker raised, parsed from Spark's text."""
    found = re.search(r"headrace\.errors\.(\w+): (.+)", text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(found[2].rstrip("."))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if line.startswith("[") or "Error" in line), "")
    return (chosen or (lines[0] if lines else "unknown")).split(" SQLSTATE")[0][:500]
