"""Deduplication explained: what it drops, holds and emits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from headrace.log import Log
from headrace.log.settings import format_span as span
from headrace.operators.contract import (
    IN_BATCHES,
    Fact,
    Operator,
    Refusal,
    Term,
    late_fact,
    span_text,
)
from headrace.operators.dedup.declare import Deduplicated


def _rule(value: tuple[str, int, int]) -> str:
    keep, ttl, delay = value
    ttl_text, delay_text = map(span_text, (ttl, delay))
    return f"the {keep} within {ttl_text}, with a delay of {delay_text}"


class DedupOperator(Operator[Deduplicated]):
    """One of several rows of a key within a time to live."""

    package = "headrace.operators.dedup"
    in_python = True
    terms: ClassVar[Mapping[str, Term]] = {"distinct": Term("rule for duplicates", _rule)}

    def facts(self, stream: Deduplicated, log: Log | None) -> list[Fact]:
        key = " and ".join(stream.by)
        ttl, delay, both = map(span, (stream.ttl, stream.delay, stream.ttl + stream.delay))
        emits = {
            "first": "the first row of each, as it arrives",
            "last": f"the last row of each, once the highest event time is {both} past the first",
        }
        return [
            ("drops", f"rows with the same {key} less than {ttl} before or after a kept row"),
            ("holds", f"each {key}, until the highest event time is {both} past its first row"),
            ("late", late_fact(delay)),
            ("emits", f"{emits[stream.keep]}; a row without {key} at once"),
        ]

    def refuses_real_time(self, stream: Deduplicated) -> Refusal | None:
        return Refusal(
            "the keys seen so far are stored batch by batch",
            f"Let readers drop duplicates by key. {IN_BATCHES}",
        )

    def final_after(self, stream: Deduplicated) -> timedelta | None:
        return stream.ttl + stream.delay if stream.keep == "last" else None
