"""Stream-stream join explained, with an estimate of its state for the rate of rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.clock import micros
from headrace.errors import UnknownTopic
from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import (
    IN_BATCHES,
    Fact,
    Operator,
    Refusal,
    Term,
    late_fact,
    listed,
    span_text,
)
from headrace.operators.stream_join.declare import Join
from headrace.pipeline.stream import Stream, sources

_FIRST = 100
"""The number of commits searched for the oldest event time."""


def _bounds(value: list[int]) -> str:
    before, after, delay = map(span_text, value)
    return f"{before} before to {after} after, with a delay of {delay},"


class StreamJoinOperator(Operator[Join]):
    """Pairs of rows with the same key that happened within a time bound."""

    package = "headrace.operators.stream_join"
    in_python = True
    terms: ClassVar[Mapping[str, Term]] = {
        "join": Term("kind of join"),
        "on": Term("join condition"),
        "prefix": Term("prefix"),
        "bounds": Term("bounds of the join", _bounds),
    }

    def facts(self, stream: Join, log: Log | None) -> list[Fact]:
        equal = ", ".join(
            mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in stream.on
        )
        left, right = (listed([s.topic.name for s in sources(part)]) for part in stream.upstream)
        before, after, delay = map(span, (stream.before, stream.after, stream.delay))
        held = [
            ("holds", f"each row of {name}, until {other} is {span(wait + stream.delay)} past it")
            for name, other, wait in ((left, right, stream.after), (right, left, stream.before))
        ]
        once = "once no match can arrive any more"
        emits = {
            "inner": "pairs only",
            "left": f"pairs, and unmatched rows of {left}, {once}",
            "right": f"pairs, and unmatched rows of {right}, {once}",
            "full": f"pairs, and unmatched rows of both, {once}",
            "anti": f"unmatched rows of {left}, {once}",
        }
        sides = ((stream.left, stream.after), (stream.right, stream.before))
        estimates = [
            ("state", text)
            for side, wait in sides
            if log is not None
            for text in _state(side, wait + stream.delay, log)
        ]
        return [
            ("joins", f"{left} with {right} where {equal} is the same"),
            ("within", f"{before} before to {after} after the row of {left}"),
            *held,
            ("limit", f"{stream.limit:,} rows of one key on a side, else the pipeline stops"),
            ("late", late_fact(delay)),
            ("emits", emits[stream.how]),
            *estimates,
        ]

    def refuses_real_time(self, stream: Join) -> Refusal | None:
        return Refusal("Spark joins two streams batch by batch", IN_BATCHES)


def _state(stream: Stream, held_for: timedelta, log: Log) -> list[str]:
    """The estimated state of one side, for each topic that has rows."""
    found = []
    for source in sources(stream):
        name = source.topic.name
        try:
            state = log.topic(name)
        except UnknownTopic:
            continue
        commits = log.commits(name, 0, _FIRST)
        oldest = min((c.oldest for c in commits if c.oldest is not None), default=None)
        if oldest is None or state.frontier is None or not state.records:
            continue
        length = max(state.frontier - oldest, 1)
        # Never more than there is, however short the time in which it arrived.
        rows = min(state.records, state.records * micros(held_for) // length)
        size = _size(rows * ((state.bytes or 0) // state.records))
        rate = state.records * 1_000_000 / length
        found.append(f"about {rows:,} rows of {name}, {size}, at {rate:,.1f} rows/s")
    return found


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1_000:
            return f"{count:,} {unit}"
        count //= 1_000
    return f"{count:,} GB"
