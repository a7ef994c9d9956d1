"""Remote lookup explained: where it can run, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from headrace.operators.contract import IN_BATCHES, Refusal, Term
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateless.operator import RowOperator
from headrace.pipeline.stream import Stream


class RemoteLookupOperator(RowOperator):
    """Rows with the columns that a user function returns for each key."""

    terms: ClassVar[Mapping[str, Term]] = {"fetch": Term("remote table")}

    def refuses_real_time(self, stream: Stream) -> Refusal | None:
        return Refusal(
            "rows would wait for a Python function that queries a remote system",
            f"Keep the data in a topic and look it up as a table. {IN_BATCHES}",
        )

    def step(self, stream: Stream) -> str:
        assert isinstance(stream, Fetched)
        return f"looks up {stream.on[0]} remotely, batch by batch"
