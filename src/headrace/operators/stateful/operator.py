"""Keyed state explained: the calls, the state and the failures."""

from __future__ import annotations

from collections.abc import Mapping
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
    late_fact,
    listed,
    span_text,
)
from headrace.operators.stateful.declare import TIMER, Stateful


class StatefulOperator(Operator[Stateful]):
    """A user function over the rows and the state of each key."""

    package = "headrace.operators.stateful"
    terms: ClassVar[Mapping[str, Term]] = {
        "function": Term("function", lambda value: " of ".join(reversed(value))),
        "state": Term("state"),
        "output": Term("output"),
        "delay": Term("delay", span_text),
        "ttl": Term("ttl", span_text),
        "order": Term("order"),
        "buckets": Term("number of buckets"),
    }

    def facts(self, stream: Stateful, log: Log | None) -> list[Fact]:
        name, which = stream.identity
        delay, ttl, keys = span(stream.delay), span(stream.ttl), listed(stream.by)
        waits = f"each row until the highest event time is {delay} past it, and "
        turn = "event-time order" if stream.order == "time" else "log order"
        stops = stream.on_error == "stop"
        failing = "the pipeline stops" if stops else "its rows become dead letters"
        timer = [("timer", "the function is called again when the watermark passes a key's timer")]
        return [
            ("calls", f"{name} ({which}) with the rows of many {keys} at once, in {turn}"),
            (
                "holds",
                f"{waits * (stream.order == 'time')}{', '.join(stream.kept.names)} of each {keys}, "
                f"until the watermark is {ttl} past its newest row, in {stream.buckets} buckets",
            ),
            *timer * (TIMER in stream.kept.names),
            ("late", late_fact(delay)),
            ("fails", f"if the function raises for a key, {failing}"),
        ]

    def refuses_real_time(self, stream: Stateful) -> Refusal | None:
        return Refusal("its state is in a Python function", f"{USE_ALERTS}. {IN_BATCHES}")

    def refuses_batch(self, stream: Stateful) -> str | None:
        return "its state is in a streaming query, and Python is called in the order of the log"
