"""Remote lookup in words: where it can run, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.operators.contract import IN_BATCHES, Refusal, Term
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateless.operator import RowOperator
from headrace.pipeline.stream import Stream


class RemoteLookupOperator(RowOperator):
    """Rows with what a user function returns for each key."""

    terms: ClassVar[Mapping[str, Term]] = {"fetch": Term("remote table")}

    def needs_commits(self, stream: Stream) -> str | None:
        return "rows are looked up elsewhere, once for each commit"

    def refuses_real_time(self, stream: Stream) -> Refusal | None:
        return Refusal(
            "a function in Python asks elsewhere, and rows would wait for the answer",
            f"Keep what it would say in a topic, and look it up as a table. {IN_BATCHES}",
        )

    def step(self, stream: Stream) -> str:
        assert isinstance(stream, Fetched)
        return f"asks for each batch of {stream.on[0]}, elsewhere"
