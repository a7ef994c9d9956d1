"""Streams of events explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.operators.contract import IN_BATCHES, Refusal, Term, listed
from headrace.operators.events.declare import Events
from headrace.operators.stateless.operator import RowOperator
from headrace.pipeline.stream import Stream


def _types(value: Any) -> str:
    types, _ = value
    return ", ".join(f"{name} v{version}" for name, version, _ in types)


class EventsOperator(RowOperator):
    """Events in the current versions of their types."""

    terms: ClassVar[Mapping[str, Term]] = {"events": Term("events and upcasters", _types)}

    def refuses_real_time(self, stream: Stream) -> Refusal | None:
        return Refusal("events of a domain are on the embedded log", IN_BATCHES)

    def step(self, stream: Stream) -> str:
        assert isinstance(stream, Events)
        names = [one.name for one in stream.reading.types]
        said = f"takes {listed(names)} in the current version; an unreadable one is a dead letter"
        return said if stream.opening is None else f"{said}; personal fields are opened"
