"""Alerts explained: what rules see, what is held and emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.alerts.declare import Alerts
from headrace.operators.contract import Fact, Operator, Term, late_fact, span_text
from headrace.pipeline.expressions import Expression


def _look_back(value: tuple[str, int, int]) -> str:
    event, within, limit = value
    return f"{span_text(within)} from each {event!r}, at most {limit:,} events,"


class AlertOperator(Operator[Alerts]):
    """Rules over the recent events of each key."""

    package = "headrace.operators.alerts"
    terms: ClassVar[Mapping[str, Term]] = {
        "alerts": Term("lookback", _look_back),
        "rules": Term("rules", one="rule"),
        "lookup": Term("lookup table of the rules"),
    }

    def facts(self, stream: Alerts, log: Log | None) -> list[Fact]:
        key, within, delay = " and ".join(stream.by), span(stream.within), span(stream.delay)
        held = span(2 * stream.within + stream.delay)
        table = [("looks up", f"the newest of {stream.known.table.topic}")] if stream.known else []
        return [
            *table,
            ("looks at", f"the last {within} of each {key}, at most {stream.limit:,} events"),
            *(("flags", f"{name}: {_text(rule.condition)}") for name, rule in stream.rules),
            ("holds", f"each event, until the highest event time is up to {held} past it"),
            ("late", late_fact(delay)),
            ("emits", f"an alert for each {stream.event} and rule, once, on arrival"),
        ]


def _text(expression: Expression) -> str:
    return " ".join(expression.split()) if isinstance(expression, str) else "a Column from Python"
