"""The settings of a query that are not part of it, such as how late a row may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from headrace.language.sql.tokens import Piece
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.stream_join.declare import Join
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.window.declare import Aggregation, Emit
from headrace.pipeline.stream import Stream, contains, sources
from headrace.pipeline.time import Lateness

_ONLY_YOU_KNOW = {
    "delay": "how late a row may be",
    "grace": "how late a row may be",
    "ttl": "how long after each other duplicates arrive",
    "wait": "how far the table lags behind the stream",
}
_USED: dict[str, tuple[type[Stream], ...]] = {
    "delay": (Aggregation, Deduplicated, Join),
    "grace": (Aggregation,),
    "ttl": (Deduplicated,),
    "wait": (Enriched,),
}
_NOTHING = timedelta(0)


@dataclass(frozen=True)
class Terms:
    """The spans of a query, and what it emits. `advice` says where to give what is missing.

    `watermarks` are the delays that topics declare. They count where the query gives none.
    `subject` is what lacks a span, at `place`; by default the query, where it needs the span.
    """

    spans: Mapping[str, timedelta]
    emit: Emit
    advice: Mapping[str, str]
    watermarks: Mapping[str, timedelta] = field(default_factory=dict)
    subject: str = "The query"
    place: Piece | None = None

    def lateness(self, piece: Piece, stream: Stream) -> Lateness:
        """The lateness of a window. A declared watermark has no grace, as in Flink."""
        declared = self._declared(stream)
        found = []
        for need, default in (
            ("delay", declared),
            ("grace", None if declared is None else _NOTHING),
        ):
            span = self.spans.get(need, default)
            if span is None:
                self._missing(piece, need, "lateness")
            found.append(span)
        return Lateness(*found)

    def delay(self, piece: Piece, *streams: Stream) -> timedelta:
        """The delay of the watermark behind the slowest stream."""
        span = self.spans.get("delay", self._declared(*streams))
        return span if span is not None else self._missing(piece, "delay", "delay")

    def span(self, need: str, piece: Piece) -> timedelta:
        span = self.spans.get(need)
        return span if span is not None else self._missing(piece, need, need)

    def _declared(self, *streams: Stream) -> timedelta | None:
        """The longest delay of the topics, if all of them declare one."""
        found = [self.watermarks.get(s.topic.name) for one in streams for s in sources(one)]
        delays = [delay for delay in found if delay is not None]
        return max(delays) if delays and len(delays) == len(found) else None

    def _missing(self, piece: Piece, need: str, kind: str) -> NoReturn:
        (self.place or piece).refuse(
            f"{self.subject} does not say its {need}: only you know {_ONLY_YOU_KNOW[need]}",
            self.advice[kind],
        )


def unused(made: Stream, spans: Iterable[str]) -> list[str]:
    """The spans that a stream has no use for."""
    return [name for name in spans if name in _USED and not contains(made, *_USED[name])]
