"""Stream-stream join in words: what it holds of each side, and what it emits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import IN_BATCHES, Fact, Operator, Refusal, Term, listed
from headrace.operators.stream_join.declare import Join
from headrace.operators.stream_join.holding import held_by
from headrace.pipeline.stream import sources


def _bounds(value: list[int]) -> str:
    before, after, delay = (span(timedelta(microseconds=part)) for part in value)
    return f"{before} before to {after} after, with a delay of {delay},"


class StreamJoinOperator(Operator[Join]):
    """Pairs of rows with the same key that happened within a time bound."""

    package = "headrace.operators.stream_join"
    terms: ClassVar[Mapping[str, Term]] = {
        "join": Term("kind of join"),
        "on": Term("columns that are equal"),
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
            ("holds", f"each row of {name}, until {other} is {span(wait + stream.delay)} after it")
            for name, other, wait in ((left, right, stream.after), (right, left, stream.before))
        ]
        once = "emitted once, after the join window closes"
        emits = {
            "inner": "pairs only",
            "left": f"pairs, and unmatched rows of {left}, {once}",
            "right": f"pairs, and unmatched rows of {right}, {once}",
            "full": f"pairs, and unmatched rows of both, {once}",
            "anti": f"unmatched rows of {left}, {once}",
        }
        estimates = [] if log is None else held_by(stream, log)
        return [
            ("joins", f"{left} with {right} where {equal} is the same"),
            ("within", f"{before} before to {after} after the row of {left}"),
            *held,
            ("limit", f"{stream.limit:,} rows of one key on a side, in that time; then it stops"),
            (
                "late",
                f"is a row that comes when the highest event time of its topic is {delay} ahead",
            ),
            ("emits", emits[stream.how]),
            *(("state", str(estimate)) for estimate in estimates),
        ]

    def needs_commits(self, stream: Join) -> str | None:
        return "what it keeps from batch to batch goes by commits"

    def refuses_real_time(self, stream: Join) -> Refusal | None:
        return Refusal("Spark joins two streams batch by batch", IN_BATCHES)
