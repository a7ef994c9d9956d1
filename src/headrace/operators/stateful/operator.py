"""Keyed state in words: the function, what is held of a key, and what becomes of failures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import (
    IN_BATCHES,
    USE_ALERTS,
    Fact,
    Operator,
    Refusal,
    Term,
    listed,
)
from headrace.operators.stateful.declare import TIMER, Stateful


def _span(value: int) -> str:
    return span(timedelta(microseconds=value))


class StatefulOperator(Operator[Stateful]):
    """What a user function makes of the rows of each key and of the state it has kept."""

    package = "headrace.operators.stateful"
    terms: ClassVar[Mapping[str, Term]] = {
        "function": Term("function", lambda value: " of ".join(reversed(value))),
        "state": Term("state"),
        "output": Term("output"),
        "delay": Term("delay", _span),
        "ttl": Term("ttl", _span),
        "order": Term("order"),
        "buckets": Term("number of buckets"),
    }

    def facts(self, stream: Stateful, log: Log | None) -> list[Fact]:
        name, which = stream.identity
        delay, ttl, keys = span(stream.delay), span(stream.ttl), listed(stream.by)
        waits = f"each row until the highest event time is {delay} past it, and "
        turn = "the order of event time" if stream.order == "time" else "the order of the log"
        failing = "the pipeline stops" if stream.on_error == "stop" else "its rows are dead letters"
        timer = [("timer", "a key comes again when the watermark has passed its timer")]
        return [
            ("calls", f"{name} ({which}) with the rows of many {keys} at once, in {turn}"),
            (
                "holds",
                f"{waits * (stream.order == 'time')}{', '.join(stream.kept.names)} of each {keys}, "
                f"until the watermark is {ttl} past its newest row, in {stream.buckets} buckets",
            ),
            *timer * (TIMER in stream.kept.names),
            (
                "late",
                f"is a row that comes when the highest event time of its topic is {delay} ahead",
            ),
            ("fails", f"for a key of which the function raises: {failing}"),
        ]

    def needs_commits(self, stream: Stateful) -> str | None:
        return "what it keeps from batch to batch goes by commits"

    def refuses_real_time(self, stream: Stateful) -> Refusal | None:
        return Refusal("a function in Python keeps its state", f"{USE_ALERTS}. {IN_BATCHES}")
