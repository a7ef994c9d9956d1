"""Stream-table join in words: which version a row gets, how long it waits, and what is amended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import IN_BATCHES, Fact, Operator, Refusal, Term, listed
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.output import Output
from headrace.pipeline.stream import sources


def _span(value: int) -> str:
    return span(timedelta(microseconds=value))


class TableLookupOperator(Operator[Enriched]):
    """Rows with what a table says of each."""

    package = "headrace.operators.table_lookup"
    terms: ClassVar[Mapping[str, Term]] = {
        "enrich": Term("way to look up"),
        "on": Term("columns that are equal"),
        "prefix": Term("prefix"),
        "wait": Term("time to wait", _span),
        "amend": Term("time to amend", _span),
    }

    def facts(self, stream: Enriched, log: Log | None) -> list[Fact]:
        mine = listed([source.topic.name for source in sources(stream.input)])
        table, keys = stream.table.topic, listed(stream.table.key)
        facts = [("looks up", f"{listed([m for m, _ in stream.on])} in {table}, a table by {keys}")]
        if stream.mode == "latest":
            return [*facts, ("version", "the newest, which a replay need not find")]
        wait = f"in the log, until {table} has come as far, or {mine} is {span(stream.wait)} ahead"
        facts += [
            ("version", "the one that was valid at the time of the row"),
            ("waits", wait),
            ("holds", f"every version of each {keys}"),
        ]
        if stream.amend is None:
            return [*facts, ("amends", "nothing: a change that comes later is left alone")]
        late = span(stream.amend)
        return [
            *facts,
            ("holds", f"each row, until {table} is {late} after it"),
            ("amends", f"a published row, when a change comes up to {late} late"),
        ]

    def published(self, output: Output) -> str:
        return "each row,"

    def needs_commits(self, stream: Enriched) -> str | None:
        return "what it keeps from batch to batch goes by commits"

    def refuses_real_time(self, stream: Enriched) -> Refusal | None:
        return Refusal(
            f"mode={stream.mode!r} waits for what the table will say",
            f"hr.alerts(...) looks up what a table says now, with mode='latest'. {IN_BATCHES}",
        )
