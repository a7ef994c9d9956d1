"""Windowed aggregation explained: its state, its lateness rule, and where it can run."""

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
    Panes,
    Refusal,
    Term,
    listed,
    span_text,
)
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.lateness import closing_of
from headrace.operators.window.windows import FOREVER, Session, Sliding, shown
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.rows import Row
from headrace.pipeline.output import Output
from headrace.pipeline.stream import sources


def _lateness(value: list[int]) -> str:
    delay, grace = map(span_text, value)
    return f"{delay} and {grace} of grace"


class WindowOperator(Operator[Aggregation]):
    """Rows counted by key and window of event time."""

    package = "headrace.operators.window"
    in_python = True
    terms: ClassVar[Mapping[str, Term]] = {
        "by": Term("grouping"),
        "window": Term("window", shown),
        "lateness": Term("lateness", _lateness),
        "emit": Term("emission"),
        "aggregates": Term("aggregates", one="aggregate"),
    }

    def shown_late(self, stream: Aggregation, excerpt: Excerpt) -> list[Row]:
        late: list[Row] = self._module("meaning").shown_late(stream, excerpt)
        return late

    def facts(self, stream: Aggregation, log: Log | None) -> list[Fact]:
        window, lateness = stream.window, stream.lateness
        by_events = all(s.topic.settings.frontier == "events" for s in sources(stream))
        now = "the highest event time" if by_events else "the frontier"
        made = ", ".join(f"{name} = {_text(aggregate)}" for name, aggregate in stream.aggregates)
        held, patience = span(stream.patience + window.settles), span(stream.patience)
        delay, grace, end = span(lateness.delay), span(lateness.grace), window.end_called
        emits = f"from the first row on; on time {delay} after {end}, then corrected"
        if stream.emit == "final":
            emits = f"once, when nothing can change any more: {held} after {end}"
        return [
            ("counts", f"by {listed(stream.by)}: {made}"),
            ("window", str(window)),
            (
                "lateness",
                f"a delay of {delay} and a grace of {grace}: the watermark is {now} minus {delay}",
            ),
            ("holds", f"each {listed(stream.by)} and window, until {now} is {held} after {end}"),
            ("late", f"a row that arrives when {now} is {patience} or more after {end}"),
            ("emits", emits),
        ]

    def published(self, output: Output) -> str:
        assert isinstance(output.stream, Aggregation)
        return published_panes(output, output.stream.emit)

    def refuses_real_time(self, stream: Aggregation) -> Refusal | None:
        if isinstance(stream.window, Session):
            return Refusal("Spark merges sessions batch by batch", f"{USE_ALERTS}. {IN_BATCHES}")
        if isinstance(stream.window, Sliding):
            return Refusal(
                "a sliding window is computed batch by batch", f"{USE_ALERTS}. {IN_BATCHES}"
            )
        if stream.emit == "final":
            return Refusal(
                "it emits a window when it is final, and no row arrives then",
                IN_BATCHES,
            )
        return Refusal(
            "it emits a window when the watermark passes its end, and no row arrives then",
            f"{USE_ALERTS}. {IN_BATCHES}",
        )

    def final_after(self, stream: Aggregation) -> timedelta | None:
        if stream.window.length >= FOREVER:
            return None
        return stream.patience + stream.window.settles

    def panes(self, stream: Aggregation) -> Panes:
        lateness = stream.lateness
        return Panes(
            lateness.delay,
            lateness.grace,
            stream.window.settles,
            stream.emit == "final",
            fires=closing_of(stream.window, lateness.delay),
            closes=closing_of(stream.window, stream.patience),
        )


def published_panes(output: Output, emit: str) -> str:
    """The panes of a window that an output publishes."""
    if emit == "final":
        return "final panes"
    match output.early:
        case "never":
            found = "on-time and late panes"
        case "batch":
            found = "early, on-time and late panes"
        case int():
            found = f"early panes every {output.early:,} rows, on-time and late ones"
        case _:
            found = f"early panes every {span(output.early)} at most, on-time and late ones"
    return found + (", each after a retraction of the last one," if output.retractions else "")


def _text(aggregate: Aggregate) -> str:
    if aggregate.kind == "expression":
        return aggregate.of or ""
    more = "" if aggregate.parameter is None else f", {aggregate.parameter:g}"
    return f"{aggregate.kind}({aggregate.of or '*'}{more})"
