"""Stream-table join explained: the version that a row gets, the wait, and amendments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import (
    IN_BATCHES,
    Fact,
    Operator,
    Refusal,
    Term,
    listed,
    span_text,
)
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.output import Output
from headrace.pipeline.stream import sources


class TableLookupOperator(Operator[Enriched]):
    """Rows with the table columns of their keys."""

    package = "headrace.operators.table_lookup"
    terms: ClassVar[Mapping[str, Term]] = {
        "enrich": Term("lookup mode"),
        "on": Term("join condition"),
        "prefix": Term("prefix"),
        "wait": Term("time to wait", span_text),
        "amend": Term("time to amend", span_text),
    }

    def facts(self, stream: Enriched, log: Log | None) -> list[Fact]:
        mine = listed([source.topic.name for source in sources(stream.input)])
        table, keys = stream.table.topic, listed(stream.table.key)
        facts = [("looks up", f"{listed([m for m, _ in stream.on])} in {table}, a table by {keys}")]
        if stream.mode == "latest":
            return [*facts, ("version", "the newest, which a replay may not repeat")]
        wait = f"in the log, until {table} has caught up or {mine} is {span(stream.wait)} ahead"
        facts += [
            ("version", "the one that was valid at the event time of the row"),
            ("waits", wait),
            ("holds", f"every version of each {keys}"),
        ]
        if stream.amend is None:
            return [*facts, ("amends", "nothing: later changes are ignored")]
        late = span(stream.amend)
        return [
            *facts,
            ("holds", f"each row, until {table} is {late} past it"),
            ("amends", f"a published row, when a change arrives up to {late} late"),
        ]

    def published(self, output: Output) -> str:
        return "each row,"

    def refuses_real_time(self, stream: Enriched) -> Refusal | None:
        return Refusal(
            f"mode={stream.mode!r} looks rows up batch by batch",
            f"hr.alerts(...) looks up the newest version, with mode='latest'. {IN_BATCHES}",
        )
