"""Rows of the log as Spark reads them: spans of offsets, cleaned, with their metadata."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from headrace.errors import OffsetOutOfRange
from headrace.log import Batch, Log, Offset, Topic, open_log
from headrace.log.event_time import time_inputs, times_of
from headrace.log.state import believed
from headrace.plan import metadata
from headrace.plan.lateness import Closing, Mask, Moments
from headrace.plan.position import Commits, Position
from headrace.plan.source_options import SourceOptions
from headrace.plan.waiting import Ready

_ARROW_ROWS = 65_536
_SPLIT_ROWS = 32_768
"""The minimum rows of a task, if there are enough."""

_RUN = 1_000
"""The average run of rows from which copying runs is faster than filtering."""

Settings = tuple[tuple[str, str], ...]
"""Settings of a log's address, which may be secret."""

_logs: dict[tuple[int, str, Settings], Log] = {}


def opened(url: str, settings: Settings = ()) -> Log:
    """This process's log at a URL. Spark reuses its Python workers from batch to batch."""
    key = (os.getpid(), url, settings)
    if key not in _logs:
        _logs[key] = open_log(url, create=False, settings=dict(settings))
    return _logs[key]


@dataclass
class Span(InputPartition):
    """The offsets that one task reads of one partition."""

    partition: int
    start: int
    end: int


def spans(log: Log, start: Position, end: Position, tasks: int) -> list[Span]:
    """Split the rows between two positions into tasks, so that one partition uses all cores.

    Where a row is judged by those before it in its partition, a task reads all of a partition.
    """
    found = []
    tasks = 1 if log.judges_rows else tasks
    for partition, (first, last) in enumerate(start.ranges(end)):
        parts = min(tasks, max(1, (last - first) // _SPLIT_ROWS))
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        found += [Span(partition, a, b) for a, b in itertools.pairwise(cuts) if a < b]
    return found


Beside = Callable[[Batch, Topic, Commits], None]
"""Takes what a task reads, whole, before rows that do not count are dropped."""


def read_rows(
    wish: SourceOptions, span: Span, beside: Beside | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a span, in record batches of a size that suits Spark."""
    if span.start == span.end:
        return
    log = opened(wish.log, wish.settings)
    topic = log.topic(wish.topic).topic
    schema = wish.schema(topic)
    names = schema.names[: len(schema) - len(wish.places)]
    timed = wish.clean or metadata.TIME in wish.places
    extra = [name for name in time_inputs(topic) if timed and name not in names]
    commits = Commits(log, wish.topic)
    deleted = metadata.DELETED in wish.places
    ready = Ready(log, wish.waiting) if wish.waiting is not None else None
    waiting: list[Batch] = []

    def column(name: str, batches: Sequence[Batch]) -> pa.Array:
        if name == metadata.TIME:
            return pa.concat_arrays([times_of(topic, batch.data) for batch in batches])
        if name == metadata.READY and ready is not None:
            moments = ((batch.commit or 0, event_times(batch, topic)) for batch in batches)
            return ready.column(moments)
        return place_column(name, batches, commits)

    def merged(batches: Sequence[Batch]) -> pa.RecordBatch:
        parts = [batch.data.select(names) for batch in batches]
        data = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        beside = [column(name, batches) for name in wish.places]
        return pa.RecordBatch.from_arrays([*data.columns, *beside], schema=schema)

    wanted = topic.schema.names if beside is not None and topic.schema else [*names, *extra]
    for batch in read_span(log, wish.topic, span, wanted):
        if beside is not None:
            beside(batch, topic, commits)
        if wish.clean:
            batch = cleaned(batch, topic, commits, wish.closing, deleted=deleted)
        if ready is not None:
            batch = chosen(batch, ready.now(batch.commit or 0, event_times(batch, topic)))
        if len(batch):
            waiting.append(batch)
        if sum(map(len, waiting)) >= _ARROW_ROWS:
            yield merged(waiting)
            waiting = []
    if waiting:
        yield merged(waiting)


def read_span(log: Log, topic: str, span: Span, columns: Sequence[str]) -> Iterator[Batch]:
    """Yield the rows of a span as the log has them; missing rows are an error."""
    try:
        yield from log.read(
            topic,
            start=Offset(span.start),
            stop=Offset(span.end),
            partitions=[span.partition],
            columns=list(columns) or None,
            judged=True,
        )
    except OffsetOutOfRange as error:
        raise OffsetOutOfRange(
            f"Topic {topic!r} no longer has the rows from offset {span.start} of partition "
            f"{span.partition} that have not been read yet: retention removed them",
            hint="Set its retention longer than a pipeline may be down",
            **error.details,
        ) from None


def cleaned(
    batch: Batch,
    topic: Topic,
    commits: Commits,
    closing: Closing | None,
    *,
    deleted: bool = False,
) -> Batch:
    """Drop rows without a valid event time. Only commits that have such rows are scanned.

    `closing` also drops late rows, and `deleted` keeps tombstones.
    """
    assert batch.commit is not None
    if deleted and batch.tombstones is not None:
        return batch.only(in_time(batch, topic, commits) | batch.tombstones)
    commit = commits[batch.commit]
    late = closing is not None and closing.touches(commit)
    if batch.tombstones is None and not commit.misplaced and not late:
        return batch
    good = in_time(batch, topic, commits)
    if late:
        assert closing is not None
        good = good & (event_times(batch, topic) >= closing.first_open(met(batch, commits)))
    return chosen(batch, good)


def chosen(batch: Batch, rows: Mask) -> Batch:
    """Select rows of a batch, none of which is a tombstone."""
    return replace(batch.part(rows, _filtered(batch.data, rows)), tombstones=None)


def _filtered(data: pa.RecordBatch, rows: Mask) -> pa.RecordBatch:
    """Select rows. If nearly all are selected, copying the runs between the others is faster."""
    unwanted = np.flatnonzero(~rows)
    if len(unwanted) * _RUN > len(rows):
        return data.filter(pa.array(rows))
    ends = [-1, *unwanted.tolist(), len(rows)]
    runs = [data.slice(a + 1, b - a - 1) for a, b in itertools.pairwise(ends)]
    return pa.concat_batches(runs)


def event_times(batch: Batch, topic: Topic) -> Moments:
    """The event time of each row; 0 where there is none."""
    times = times_of(topic, batch.data).cast(pa.int64())
    moments: Moments = (pc.fill_null(times, 0) if times.null_count else times).to_numpy()
    return moments


def in_time(batch: Batch, topic: Topic, commits: Commits) -> Mask:
    """True for each row with a valid event time."""
    assert batch.commit is not None
    if batch.judged is not None:
        return batch.judged.good
    if batch.tombstones is None and not commits[batch.commit].misplaced:
        return np.ones(len(batch), np.bool_)
    times = times_of(topic, batch.data).cast(pa.int64())
    first, last = believed(commits[batch.commit].bound)
    good = pc.and_(pc.less_equal(first, times), pc.less_equal(times, last))
    mask: Mask = pc.fill_null(good, False).to_numpy(zero_copy_only=False)
    return mask if batch.tombstones is None else mask & ~batch.tombstones


def met(batch: Batch, commits: Commits) -> Any:
    """The frontier that the rows of a batch met: one for each, or one for all."""
    if batch.judged is not None:
        return batch.judged.frontiers
    assert batch.commit is not None
    before = commits[batch.commit].before
    return metadata.NO_FRONTIER if before is None else before


def place_column(name: str, batches: Sequence[Batch], commits: Commits) -> pa.Array:
    """A metadata column for all rows of some batches."""
    if name == metadata.OFFSET:
        return pa.array(np.concatenate([batch.offsets for batch in batches]))
    if name == metadata.DELETED:
        none = (
            np.zeros(len(b), np.bool_) if b.tombstones is None else b.tombstones for b in batches
        )
        return pa.array(np.concatenate(list(none)))
    match name:
        case metadata.COMMIT:
            values = [batch.commit for batch in batches]
        case metadata.PARTITION:
            values = [batch.partition for batch in batches]
        case metadata.FRONTIER:
            if any(batch.judged is not None for batch in batches):
                return pa.array(np.concatenate([met(batch, commits) for batch in batches]))
            values = [met(batch, commits) for batch in batches]
        case metadata.LOWEST:
            before = [commits[batch.commit or 0].before for batch in batches]
            values = [metadata.NO_FRONTIER if moment is None else moment for moment in before]
        case _:
            raise ValueError(name)
    column = np.array(values, dtype=metadata.type_of(name).to_pandas_dtype())
    return pa.array(np.repeat(column, [len(batch) for batch in batches]))
