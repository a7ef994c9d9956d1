"""Deduplication in words: what it drops, how long it remembers a key, and what it emits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import IN_BATCHES, Fact, Operator, Refusal, Term
from headrace.operators.dedup.declare import Deduplicated


def _rule(value: tuple[str, int, int]) -> str:
    keep, ttl, delay = value
    ttl_text, delay_text = (span(timedelta(microseconds=part)) for part in (ttl, delay))
    return f"the {keep} within {ttl_text}, with a delay of {delay_text}"


class DedupOperator(Operator[Deduplicated]):
    """One of several rows of a key within a time to live."""

    package = "headrace.operators.dedup"
    terms: ClassVar[Mapping[str, Term]] = {"distinct": Term("rule for duplicates", _rule)}

    def facts(self, stream: Deduplicated, log: Log | None) -> list[Fact]:
        key = " and ".join(stream.by)
        ttl, delay, both = map(span, (stream.ttl, stream.delay, stream.ttl + stream.delay))
        emits = {
            "first": "the first row of each, as it comes",
            "last": f"the last row of each, once: when time is {both} past the first",
        }
        return [
            ("drops", f"rows whose {key} was there less than {ttl} before or after"),
            ("holds", f"each {key}, until time is {both} past its first row"),
            (
                "late",
                f"is a row that comes when the highest event time of its topic is {delay} ahead",
            ),
            ("emits", f"{emits[stream.keep]}; a row without {key} at once"),
        ]

    def needs_commits(self, stream: Deduplicated) -> str | None:
        return "what it keeps from batch to batch goes by commits"

    def refuses_real_time(self, stream: Deduplicated) -> Refusal | None:
        return Refusal(
            "duplicates are known by what was stored batch by batch",
            f"Let readers drop them by their key. {IN_BATCHES}",
        )

    def final_after(self, stream: Deduplicated) -> timedelta | None:
        return stream.ttl + stream.delay if stream.keep == "last" else None
