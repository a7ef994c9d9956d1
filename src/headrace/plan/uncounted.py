"""The rows that a batch does not count: late ones, dead ones, tombstones.

The log knows for each commit how far back its event times reach and how many of its rows have
none, so only the few commits that can hold such rows are read again. Where rows are judged one by
one, the tasks that read them find them as well (`plan.side_output`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.clock import micros, to_datetime
from headrace.log import Batch, Commit, Log, Topic, TopicCommit
from headrace.log.dead_letter import (
    AHEAD,
    NO_KEY,
    NO_TIME,
    OUTSIDE,
    UNREADABLE,
    bytes_text,
    dead_letters,
    misread,
    row_text,
)
from headrace.log.event_time import time_column, times_of
from headrace.pipeline.stream import Stream, sources
from headrace.plan import metadata
from headrace.plan.lateness import Closing, Mask
from headrace.plan.log_rows import chosen, event_times, in_time, met, place_column
from headrace.plan.position import Commits, Position, Positions
from headrace.schema.python_rows import to_rows

_PAGE = 10_000
_PLAIN = ("json", "avro", "bytes")
"""Formats with one reason for all records that do not decode, so that letters can be grouped."""
_BINARY = ("avro", "avro-confluent")
"""Formats whose records are no text."""


@dataclass
class Uncounted:
    """The uncounted rows of one topic: candidates for late rows, dead letters, tombstones."""

    candidates: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[pa.Table] = field(default_factory=list)
    tombstones: int = 0
    unevenly: int = 0
    """Dead letters that pass on another path to the stream: one refuses them, one filters."""

    @property
    def dead_rows(self) -> int:
        return sum(letters.num_rows for letters in self.dead)

    def add(
        self, step: str, topic: Topic, batch: Batch, commits: Commits, closing: Closing | None
    ) -> None:
        """Add the uncounted rows of a batch of the log."""
        assert batch.commit is not None
        good, commit = in_time(batch, topic, commits), commits[batch.commit]
        if batch.tombstones is not None:
            self.tombstones += int(batch.tombstones.sum())
        if not good.all():
            letters = _dead_letters(step, topic, batch, good, commit.bound)
            self.dead += [letters] if letters.num_rows else []
        if closing is not None and closing.touches(commit):
            rows = _candidates(topic, batch, good, commits, closing)
            self.candidates += [rows] if rows.num_rows else []


def all_uncounted(
    log: Log,
    step: str,
    stream: Stream,
    start: Positions,
    end: Positions,
    closing: Closing | None = None,
) -> dict[str, Uncounted]:
    """Find the uncounted rows of each topic of a stream between two positions."""
    topics = [source.topic for source in sources(stream)]
    return {
        topic.name: find_uncounted(log, step, topic, start[topic.name], end[topic.name], closing)
        for topic in topics
    }


def find_uncounted(
    log: Log,
    step: str,
    topic: Topic,
    start: Position,
    end: Position,
    closing: Closing | None,
) -> Uncounted:
    """Find the uncounted rows of a topic between two positions."""
    found = Uncounted()
    commits = Commits(log, topic.name)
    for first, last in _suspects(log, topic.name, start.commit, end.commit, closing):
        for batch in log.read(
            topic.name,
            start=Commit(first - 1),
            stop=Commit(last),
            columns=topic.schema.names if topic.schema is not None else None,
            judged=True,
        ):
            found.add(step, topic, batch, commits, closing)
    return found


def _suspects(
    log: Log, topic: str, after: int, upto: int, closing: Closing | None
) -> Iterator[tuple[int, int]]:
    """Runs of commits, first and last, that may hold rows which are not counted."""
    run: tuple[int, int] | None = None
    for commit in _commits(log, topic, after, upto):
        if commit.misplaced or (closing is not None and closing.touches(commit)):
            run = (run[0] if run else commit.number, commit.number)
        elif run:
            yield run
            run = None
    if run:
        yield run


def _commits(log: Log, topic: str, after: int, upto: int) -> Iterator[TopicCommit]:
    while page := log.commits(topic, after, _PAGE):
        for commit in page:
            if commit.number > upto:
                return
            yield commit
        after = page[-1].number


def _candidates(
    topic: Topic,
    batch: Batch,
    good: Mask,
    commits: Commits,
    closing: Closing,
) -> pa.RecordBatch:
    """The rows that are too late for at least the first of their windows, with their places."""
    times = event_times(batch, topic)
    rows = chosen(batch, good & (times < closing.all_open_from(met(batch, commits))))
    beside = {name: place_column(name, [rows], commits) for name in metadata.TYPES}
    beside |= {name: times_of(topic, rows.data) for name in metadata.times_beside(topic)}
    return pa.RecordBatch.from_arrays(
        [*rows.data.columns, *beside.values()], names=[*rows.data.schema.names, *beside]
    )


def _dead_letters(step: str, topic: Topic, batch: Batch, good: Mask, bound: int | None) -> pa.Table:
    dead = ~good if batch.tombstones is None else ~good & ~batch.tombstones
    letters = chosen(batch, dead)
    data = letters.data
    # Python's dates end with the year 9999, and a dead letter may be further ahead than that.
    readable = [c.cast(pa.string()) if pa.types.is_timestamp(c.type) else c for c in data.columns]
    rows = to_rows(pa.RecordBatch.from_arrays(readable, names=data.schema.names))
    reasons = _told(topic, letters, bound)
    texts: list[str | None] = [row_text(row) for row in rows]
    if letters.judged is not None:
        faults = [letters.judged.faults.get(offset) for offset in letters.offsets.tolist()]
        shown = topic.settings.format not in _BINARY
        for place, fault in enumerate(faults):
            if fault is not None and fault.reason is not None:
                reasons[place] = _unreadable(topic, fault.reason)
                texts[place] = bytes_text(fault.value, readable=False)
            elif fault is not None and shown:
                texts[place] = bytes_text(fault.value, readable=True)
    return dead_letters(
        len(rows),
        step=step,
        topic=topic.name,
        partition=batch.partition,
        offset=letters.offsets,
        commit_number=batch.commit,
        appended=_appended(letters),
        reason=reasons,
        row=texts,
    )


def _unreadable(topic: Topic, reason: str) -> str:
    if reason == NO_KEY:
        return NO_KEY
    return UNREADABLE if topic.settings.format in _PLAIN else f"{UNREADABLE}: {reason}"


def _appended(batch: Batch) -> Any:
    if batch.timestamps is None:
        return to_datetime(batch.timestamp)
    return pa.array(batch.timestamps).cast(pa.timestamp("us", tz="UTC"))


def _told(topic: Topic, letters: Batch, bound: int | None) -> list[str]:
    times = times_of(topic, letters.data).cast(pa.int64())
    if letters.timestamps is None or topic.settings.skew is None:
        return [_reason(time, bound, topic) for time in times]
    bounds = (letters.timestamps + micros(topic.settings.skew)).tolist()
    return [_reason(time, latest, topic) for time, latest in zip(times, bounds, strict=True)]


def _reason(time: pa.Scalar, bound: int | None, topic: Topic) -> str:
    """Why a row with this event time is a dead letter."""
    if not time.is_valid:
        return NO_TIME
    micros: int = time.as_py()
    reason = AHEAD if bound is not None and micros > bound else OUTSIDE
    return reason if time_column(topic) is None else misread(reason, micros)
