"""A topic of a log as a Spark data source, batch and streaming, and as a sink.

    spark.dataSource.register(LogSource)
    spark.read.format("headrace").option("log", "file:./data").option("topic", "orders").load()

The position of a streaming reader is a commit. A batch has whole commits, as many as `max_rows` and
`max_commits` allow. Executors read Arrow record batches, straight from the segments
or from Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.clock import SECOND, SystemClock
from headrace.errors import LogUnavailable
from headrace.log import LATEST, Batch, Capability, Commit, Log, Topic
from headrace.plan.gaps import Gaps
from headrace.plan.log_rows import Span, opened, read_rows, spans
from headrace.plan.position import Commits, Position, beginning, next_cut, position_at
from headrace.plan.side_output import SideOutput
from headrace.plan.source_options import ANY, FORMAT, SourceOptions
from headrace.plan.uncounted import Uncounted
from headrace.runtime.data_writer import JobWriter, StreamWriter, Target
from headrace.schema.ddl import format_schema

_PATIENCE = 600 * SECOND
_MOMENT = SECOND // 50
_FRESH = "Without its checkpoint, the stream reads the topic from the start"


class LogSource(DataSource):
    """The format `headrace`; register it with `spark.dataSource.register(LogSource)`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        options = SourceOptions.from_options(self.options)
        return format_schema(
            options.schema(opened(options.log, options.settings).topic(options.topic).topic)
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(SourceOptions.from_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(SourceOptions.from_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return JobWriter(self._target(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        target = self._target(schema, overwrite)
        return StreamWriter(target, self.options.get("checkpointLocation"))

    def _target(self, schema: StructType, overwrite: bool) -> Target:
        target = Target.from_options(self.options)
        target.check(schema, overwrite=overwrite)
        return target


class BatchReader(DataSourceReader):
    """The rows of a topic at this moment."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def _log(self) -> Log:
        return opened(self._options.log, self._options.settings)

    def partitions(self) -> Sequence[Span]:
        log, topic = self._log, self._options.topic
        start = self._options.start or beginning(log, topic)
        end = position_at(log, topic, min(log.head(), self._options.until))
        # Without partitions, Spark would read everything.
        return spans(log, start, end, self._options.tasks) or [Span(0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return read_rows(self._options, partition) if partition.end else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The commits of a topic, batch by batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._until: int | None = None
        self._target: tuple[int, ...] | None = None
        """The ends to catch up with, in a log where commits follow the appends."""
        self._idle: tuple[int, int] | None = None
        """The log's head and a position with nothing new: a cache, since Spark asks often."""

    @property
    def _log(self) -> Log:
        return opened(self._options.log, self._options.settings)

    def initialOffset(self) -> dict[str, Any]:
        start = self._options.start or beginning(self._log, self._options.topic)
        return self._offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        log = self._log
        if Capability.NUMBERED_APPENDS in log.capabilities:
            self._until = log.head()
        else:
            self._target = log.offsets_at(self._options.topic, LATEST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        found = self._latest(start, limit)
        clock = SystemClock()
        until = clock.monotonic() + _PATIENCE
        while found is start and self._target is not None:
            if self._at_target():
                return self._latest(start, limit)
            if clock.monotonic() > until:
                raise LogUnavailable(
                    f"Nobody makes commits of topic {self._options.topic!r}",
                    hint="Is the process that runs the application still alive?",
                )
            clock.sleep(_MOMENT)
            found = self._latest(start, limit)
        return found

    def _at_target(self) -> bool:
        """True if there are commits of all records that it has to catch up with."""
        assert self._target is not None
        log, topic = self._log, self._options.topic
        reached = log.offsets_at(topic, Commit(log.head()))
        return all(there >= wanted for there, wanted in zip(reached, self._target, strict=False))

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options, log, after = self._options, self._log, start["commit"]
        head = log.head()
        if (head, after) == self._idle:
            return start
        self._idle = None
        self._check(start)
        everything = isinstance(limit, ReadAllAvailable)
        upto = min(options.until, ANY if self._until is None else self._until)
        commit = next_cut(
            log,
            options.topic,
            after,
            rows=ANY if everything else options.max_rows,
            commits=ANY if everything else options.max_commits,
            upto=min(upto, options.seam) if after < options.seam else upto,
        )
        if commit > after:
            # Results may survive a power cut, so their rows have to.
            log.sync(commit)
            return self._offset(position_at(log, options.topic, commit))
        self._idle = (head, after)
        return start

    def _offset(self, position: Position) -> dict[str, Any]:
        """A position as Spark writes it into its checkpoint, where the sink reads it."""
        return {"topic": self._options.topic, **position.to_json()}

    def _check(self, *places: dict[str, Any]) -> None:
        """Raise unless the log still has the rows after the positions in Spark's checkpoint."""
        topic = self._options.topic
        gaps = Gaps(self._log, f"stream of {topic}", [topic], fresh=_FRESH)
        for place in places:
            gaps.check({topic: Position.from_json(place)})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Span]:
        self._check(start, end)
        log = self._log
        found = spans(log, Position.from_json(start), Position.from_json(end), self._options.tasks)
        return [Span(0, 0, 0)] if self._options.ticks and not found else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        if not self._options.beside:
            return read_rows(self._options, partition)
        return self._read_beside(partition)

    def _read_beside(self, span: Span) -> Iterator[pa.RecordBatch]:
        options, found = self._options, Uncounted()

        def add(batch: Batch, topic: Topic, commits: Commits) -> None:
            found.add(options.step, topic, batch, commits, options.late)

        yield from read_rows(options, span, add)
        SideOutput(Path(options.beside)).write(options.topic, span, found)
