"""How much a join will hold, for the rate at which rows have come so far."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import micros
from headrace.errors import UnknownTopic
from headrace.log import Log
from headrace.operators.stream_join.declare import Join
from headrace.pipeline.stream import Stream, sources

_FIRST = 100
"""Commits that are asked how far back event times go."""


@dataclass(frozen=True)
class Holding:
    """What is held of a topic: about so many rows, and so many bytes as the log has them."""

    topic: str
    rows: int
    bytes: int
    per_second: float
    """Rows that come in a second of event time."""

    def __str__(self) -> str:
        return (
            f"about {self.rows:,} rows of {self.topic}, {_size(self.bytes)}, "
            f"at {self.per_second:,.1f} rows/s"
        )


def held_by(join: Join, log: Log) -> list[Holding]:
    """What a join will hold of each of its topics; nothing of those that have no rows yet."""
    found = []
    for side, wait in ((join.left, join.after), (join.right, join.before)):
        found += _held(side, wait + join.delay, log)
    return found


def _held(stream: Stream, span: timedelta, log: Log) -> list[Holding]:
    found = []
    for source in sources(stream):
        try:
            state = log.topic(source.topic.name)
        except UnknownTopic:
            continue
        commits = log.commits(source.topic.name, 0, _FIRST)
        oldest = min((c.oldest for c in commits if c.oldest is not None), default=None)
        if oldest is None or state.frontier is None or not state.records:
            continue
        length = max(state.frontier - oldest, 1)
        # Never more than there is, however short the time in which it has come.
        rows = min(state.records, state.records * micros(span) // length)
        size = (state.bytes or 0) // state.records
        rate = state.records * 1_000_000 / length
        found.append(Holding(source.topic.name, rows, rows * size, rate))
    return found


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1_000:
            return f"{count:,} {unit}"
        count //= 1_000
    return f"{count:,} GB"
