"""A topic of the embedded log as a source of Spark, batch and streaming, and as a sink.

    spark.dataSource.register(LogSource)
    spark.read.format("headrace").option("log", "file:./data").option("topic", "orders").load()

A streaming reader's position is a commit, and a batch is made of whole commits, as many as
`max_rows` and `max_commits` allow. Executors read Arrow record batches straight from the segments.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from headrace.engine import places
from headrace.engine.lateness import Closing, Mask, Moments
from headrace.engine.position import Commits, Position, beginning, next_cut, position_at
from headrace.engine.writer import JobWriter, StreamWriter, Target
from headrace.errors import InvalidSetting, OffsetOutOfRange, UnknownColumn
from headrace.log import Batch, Log, Offset, Topic, open_log
from headrace.schema.ddl import format_schema

FORMAT = "headrace"

MAX_ROWS = 4_000_000
"""Rows in a batch, unless one commit alone has more. A batch costs half a second whatever is in it,
and what is held of it in memory are its results."""

_ARROW_ROWS = 65_536
_SPLIT_ROWS = 131_072
"""A task reads at least so many rows, if there are so many."""

_RUN = 1_000
"""Rows that are copied in one piece, on average, before that is faster than to choose each."""

_ANY = 1 << 60

_logs: dict[tuple[int, str], Log] = {}


def opened(url: str) -> Log:
    """This process's log at a URL: Spark's Python workers live on from batch to batch."""
    key = (os.getpid(), url)
    if key not in _logs:
        _logs[key] = open_log(url, create=False)
    return _logs[key]


@dataclass(frozen=True)
class Wish:
    """What is asked of a topic: its columns, the places to go with them, and in what portions.

    `clean` leaves out tombstones and rows whose event time is missing or not to be believed, and
    `closing` those that are too late for all of their windows.
    """

    log: str
    topic: str
    columns: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()
    clean: bool = False
    start: Position | None = None
    max_rows: int = MAX_ROWS
    max_commits: int = _ANY
    tasks: int = 2
    closing: Closing | None = None
    seam: int = 0
    """A commit that a batch from before it does not go beyond: up to there all is stored."""

    @staticmethod
    def from_options(options: Mapping[str, str]) -> Wish:
        """What a user wrote after `.option`; Spark has made the names lower case."""
        known = {"log", "topic", "columns", "places", "clean", "start", "max_rows", "max_commits"}
        if unknown := set(options) - known - {"tasks", "closing", "seam", "path"}:
            raise InvalidSetting(
                f"The source {FORMAT!r} has no option {min(unknown)!r}",
                hint=f"There are: {', '.join(sorted(known))}",
            )
        for needed in ("log", "topic"):
            if needed not in options:
                raise InvalidSetting(
                    f"The source {FORMAT!r} needs the option {needed!r}",
                    hint='.option("log", "file:./data").option("topic", "orders")',
                )
        columns, start = options.get("columns"), options.get("start")
        return Wish(
            options["log"],
            options["topic"],
            tuple(json.loads(columns)) if columns else None,
            tuple(json.loads(options.get("places", "[]"))),
            options.get("clean", "false") == "true",
            Position.from_json(json.loads(start)) if start else None,
            _number(options, "max_rows", MAX_ROWS),
            _number(options, "max_commits", _ANY),
            _number(options, "tasks", 2),
            Closing(*json.loads(options["closing"])) if "closing" in options else None,
            int(options.get("seam", "0")),
        )

    def options(self) -> dict[str, str]:
        """The wish as options, for `.options(**wish.options())`."""
        made = {
            "log": self.log,
            "topic": self.topic,
            "places": json.dumps(self.places),
            "clean": "true" if self.clean else "false",
            "max_rows": str(self.max_rows),
            "max_commits": str(self.max_commits),
            "tasks": str(self.tasks),
            "seam": str(self.seam),
        }
        if self.columns is not None:
            made["columns"] = json.dumps(self.columns)
        if self.closing is not None:
            made["closing"] = json.dumps(astuple(self.closing))
        if self.start is not None:
            made["start"] = json.dumps(self.start.to_json())
        return made

    def schema(self, topic: Topic) -> pa.Schema:
        """The columns that the rows have, and their places."""
        if topic.schema is None:
            raise InvalidSetting(
                f"Topic {topic.name!r} holds raw bytes and has no columns for Spark",
                hint="Create it with a schema",
            )
        names = topic.schema.names if self.columns is None else self.columns
        for name in names:
            if name not in topic.schema.names:
                raise UnknownColumn(
                    f"Topic {topic.name!r} has no column {name!r}",
                    hint=f"There are: {', '.join(topic.schema.names)}",
                )
        fields = [topic.schema.field(name).with_nullable(True) for name in names]
        return pa.schema([*fields, *((name, places.TYPES[name]) for name in self.places)])


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise InvalidSetting(f"{name} cannot be {text!r}", hint="It is a number, 1 or more")
    return int(text)


class LogSource(DataSource):
    """`spark.dataSource.register(LogSource)` makes the format `headrace` known."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        wish = Wish.from_options(self.options)
        return format_schema(wish.schema(opened(wish.log).topic(wish.topic).topic))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(Wish.from_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(Wish.from_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return JobWriter(self._target(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        target = self._target(schema, overwrite)
        return StreamWriter(target, self.options.get("checkpointLocation"))

    def _target(self, schema: StructType, overwrite: bool) -> Target:
        target = Target.from_options(self.options, FORMAT)
        target.check(schema, overwrite=overwrite)
        return target


@dataclass
class Span(InputPartition):
    """The offsets that one task reads of one partition."""

    partition: int
    start: int
    end: int


class BatchReader(DataSourceReader):
    """Everything that a topic holds now."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish

    def partitions(self) -> Sequence[Span]:
        log, topic = opened(self._wish.log), self._wish.topic
        start = self._wish.start or beginning(log, topic)
        return spans(start, position_at(log, topic, log.head()), self._wish.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return read_rows(self._wish, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is committed to a topic, batch by batch of whole commits."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._until: int | None = None
        self._idle: tuple[int, int] | None = None
        """The log's head and a position, when there was nothing new for it: Spark asks often."""

    def initialOffset(self) -> dict[str, Any]:
        start = self._wish.start or beginning(opened(self._wish.log), self._wish.topic)
        return self._offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._wish.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = opened(self._wish.log).head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        wish, log, after = self._wish, opened(self._wish.log), start["commit"]
        head = log.head()
        if (head, after) == self._idle:
            return start
        self._idle = None
        everything = isinstance(limit, ReadAllAvailable)
        upto = _ANY if self._until is None else self._until
        commit = next_cut(
            log,
            wish.topic,
            after,
            rows=_ANY if everything else wish.max_rows,
            commits=_ANY if everything else wish.max_commits,
            upto=min(upto, wish.seam) if after < wish.seam else upto,
        )
        if commit > after:
            return self._offset(position_at(log, wish.topic, commit))
        self._idle = (head, after)
        return start

    def _offset(self, position: Position) -> dict[str, Any]:
        """A position as Spark writes it into its checkpoint, from where a sink reads it."""
        return {"topic": self._wish.topic, **position.to_json()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Span]:
        return spans(Position.from_json(start), Position.from_json(end), self._wish.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return read_rows(self._wish, partition)


def spans(start: Position, end: Position, tasks: int) -> list[Span]:
    """The work between two positions, shared out: a topic of one partition keeps all cores busy."""
    found = []
    for partition, (first, last) in enumerate(start.ranges(end)):
        parts = min(tasks, max(1, (last - first) // _SPLIT_ROWS))
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        found += [Span(partition, a, b) for a, b in itertools.pairwise(cuts) if a < b]
    return found


def read_rows(wish: Wish, span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of a span, in record batches of a size that suits Spark."""
    log = opened(wish.log)
    topic = log.topic(wish.topic).topic
    schema = wish.schema(topic)
    names = schema.names[: len(schema) - len(wish.places)]
    time = topic.event_time
    extra = [time] if wish.clean and time is not None and time not in names else []
    commits = Commits(log, wish.topic)
    waiting: list[Batch] = []
    for batch in read_span(log, wish.topic, span, [*names, *extra]):
        if wish.clean:
            batch = cleaned(batch, topic, commits, wish.closing)
        if len(batch):
            waiting.append(batch)
        if sum(map(len, waiting)) >= _ARROW_ROWS:
            yield _merged(waiting, schema, wish.places, commits)
            waiting = []
    if waiting:
        yield _merged(waiting, schema, wish.places, commits)


def read_span(log: Log, topic: str, span: Span, columns: Sequence[str]) -> Iterator[Batch]:
    """The rows of a span as the log has them; rows that are gone are an error."""
    try:
        yield from log.read(
            topic,
            start=Offset(span.start),
            stop=Offset(span.end),
            partitions=[span.partition],
            columns=list(columns) or None,
        )
    except OffsetOutOfRange as error:
        raise OffsetOutOfRange(
            f"Topic {topic!r} no longer has the rows from offset {span.start} of partition "
            f"{span.partition} that have not been read yet: its retention took them away",
            hint="Let it keep rows for longer than a pipeline may stand still",
            **error.details,
        ) from None


def cleaned(batch: Batch, topic: Topic, commits: Commits, closing: Closing | None) -> Batch:
    """The rows that have a place in time. Only where the log knows of others is it looked at."""
    assert batch.commit is not None
    commit = commits[batch.commit]
    late = closing is not None and closing.touches(commit)
    if batch.tombstones is None and not commit.misplaced and not late:
        return batch
    good = in_time(batch, topic, commits)
    if late:
        assert closing is not None
        assert commit.before is not None
        good = good & (event_times(batch, topic) >= closing.first_open(commit.before))
    return chosen(batch, good)


def chosen(batch: Batch, rows: Mask) -> Batch:
    """Some rows of a batch, of which none is a tombstone."""
    return replace(
        batch, offsets=batch.offsets[rows], data=_filtered(batch.data, rows), tombstones=None
    )


def _filtered(data: pa.RecordBatch, rows: Mask) -> pa.RecordBatch:
    """Some rows. Where nearly all are wanted, to copy what lies between the others is faster."""
    unwanted = np.flatnonzero(~rows)
    if len(unwanted) * _RUN > len(rows):
        return data.filter(pa.array(rows))
    ends = [-1, *unwanted.tolist(), len(rows)]
    runs = [data.slice(a + 1, b - a - 1) for a, b in itertools.pairwise(ends)]
    return pa.concat_batches(runs)


def event_times(batch: Batch, topic: Topic) -> Moments:
    """The event time of each row; 0 where there is none."""
    times = batch.data.column(topic.event_time).cast(pa.int64())
    moments: Moments = (pc.fill_null(times, 0) if times.null_count else times).to_numpy()
    return moments


def in_time(batch: Batch, topic: Topic, commits: Commits) -> Mask:
    """For each row, whether it has an event time that is to be believed."""
    assert batch.commit is not None
    if batch.tombstones is None and not commits[batch.commit].misplaced:
        return np.ones(len(batch), np.bool_)
    times = batch.data.column(topic.event_time).cast(pa.int64())
    good = pc.is_valid(times)
    bound = commits[batch.commit].bound
    if bound is not None:
        good = pc.and_(good, pc.fill_null(pc.less_equal(times, bound), False))
    mask: Mask = good.to_numpy(zero_copy_only=False)
    return mask if batch.tombstones is None else mask & ~batch.tombstones


def _merged(
    batches: Sequence[Batch], schema: pa.Schema, wanted: Sequence[str], commits: Commits
) -> pa.RecordBatch:
    names = schema.names[: len(schema) - len(wanted)]
    parts = [batch.data.select(names) for batch in batches]
    data = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
    return pa.RecordBatch.from_arrays(
        [*data.columns, *(place_column(name, batches, commits) for name in wanted)], schema=schema
    )


def place_column(name: str, batches: Sequence[Batch], commits: Commits) -> pa.Array:
    """One of the places of all the rows in some batches."""
    if name == places.OFFSET:
        return pa.array(np.concatenate([batch.offsets for batch in batches]))
    match name:
        case places.COMMIT:
            values = [batch.commit for batch in batches]
        case places.PARTITION:
            values = [batch.partition for batch in batches]
        case places.FRONTIER:
            before = [commits[batch.commit or 0].before for batch in batches]
            values = [places.NO_FRONTIER if moment is None else moment for moment in before]
        case _:
            raise ValueError(name)
    column = np.array(values, dtype=places.TYPES[name].to_pandas_dtype())
    return pa.array(np.repeat(column, [len(batch) for batch in batches]))
