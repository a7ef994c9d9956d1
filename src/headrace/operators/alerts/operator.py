"""Alerts in words: what rules look at, how long events are held, and what is emitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.alerts.declare import Alerts
from headrace.operators.contract import Fact, Operator, Term
from headrace.pipeline.expressions import Expression


def _look_back(value: tuple[str, int, int]) -> str:
    event, within, limit = value
    return (
        f"{span(timedelta(microseconds=within))} from each {event!r}, at {limit:,} events at most,"
    )


class AlertOperator(Operator[Alerts]):
    """Rules over the recent events of each key."""

    package = "headrace.operators.alerts"
    terms: ClassVar[Mapping[str, Term]] = {
        "alerts": Term("look back", _look_back),
        "rules": Term("rules", one="rule"),
        "lookup": Term("table that rules look things up in"),
    }

    def facts(self, stream: Alerts, log: Log | None) -> list[Fact]:
        key, within, delay = " and ".join(stream.by), span(stream.within), span(stream.delay)
        held = span(2 * stream.within + stream.delay)
        table = [("looks up", f"the newest of {stream.known.table.topic}")] if stream.known else []
        return [
            *table,
            (
                "looks at",
                f"the events of each {key} in the {within} up to each, {stream.limit:,} at most",
            ),
            *(("flags", f"{name}: {_text(rule.condition)}") for name, rule in stream.rules),
            ("holds", f"each event, until time is up to {held} past it"),
            (
                "late",
                f"is a row that comes when the highest event time of its topic is {delay} ahead",
            ),
            ("emits", f"an alert for each {stream.event} and rule, once, as it comes"),
        ]

    def needs_commits(self, stream: Alerts) -> str | None:
        return "what it keeps from batch to batch goes by commits"


def _text(expression: Expression) -> str:
    return " ".join(expression.split()) if isinstance(expression, str) else "a Column of Python's"
