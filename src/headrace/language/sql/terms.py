"""The settings of a query that are not part of it, such as how late a row may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.language.sql.tokens import Piece
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.window.declare import Emit
from headrace.pipeline.chains import read_directly
from headrace.pipeline.stream import Source, Stream, sources
from headrace.pipeline.time import Lateness

_ONLY_YOU_KNOW = {
    "delay": "how late a row may be",
    "grace": "how late a row may be",
    "ttl": "how long after each other duplicates arrive",
    "wait": "how far the table lags behind the stream",
}
_NOTHING = timedelta(0)


@dataclass(frozen=True)
class Terms:
    """The spans of a query, and what it emits. `advice` says where to give what is missing.

    Every step of the query has the same ones, and `used` are those that one has asked for.
    `watermarks` are the delays that topics declare. They count where the query gives none.
    `subject` is what lacks a span, at `place`; by default the query, where it needs the span.
    """

    spans: Mapping[str, timedelta]
    emit: Emit
    advice: Mapping[str, str]
    watermarks: Mapping[str, timedelta] = field(default_factory=dict)
    subject: str = "The query"
    place: Piece | None = None
    used: set[str] = field(default_factory=set)

    def lateness(self, piece: Piece, stream: Stream) -> Lateness:
        """The lateness of a window. A declared watermark has no grace, as in Flink."""
        declared = self._declared(stream)
        grace = None if declared is None else _NOTHING
        return Lateness(
            self._span("delay", declared, piece, "lateness"),
            self._span("grace", grace, piece, "lateness"),
        )

    def delay(self, piece: Piece, *streams: Stream) -> timedelta:
        """The delay of the watermark behind the slowest stream."""
        return self._span("delay", self._declared(*streams), piece, "delay")

    def span(self, need: str, piece: Piece) -> timedelta:
        return self._span(need, None, piece, need)

    @property
    def unused(self) -> list[str]:
        """The given spans that no step of the query has asked for."""
        return [name for name in self.spans if name not in self.used]

    def _span(self, need: str, default: timedelta | None, piece: Piece, kind: str) -> timedelta:
        self.used.add(need)
        span = self.spans.get(need, default)
        if span is None:
            (self.place or piece).refuse(
                f"{self.subject} does not say its {need}: only you know {_ONLY_YOU_KNOW[need]}",
                self.advice[kind],
            )
        return span

    def _declared(self, *streams: Stream) -> timedelta | None:
        """The longest delay that streams need, if all of their topics declare a watermark."""
        topics = {source.topic.name for one in streams for source in sources(one)}
        if not topics <= self.watermarks.keys():
            return None
        found = [self._disorder(part) for one in streams for part in read_directly(one)]
        delays = [delay for delay in found if delay is not None]
        return max(delays) if len(delays) == len(found) else None

    def _disorder(self, part: Stream) -> timedelta | None:
        """The delay of a topic, or of results: windows and joins pass rows on in order."""
        match part:
            case Source():
                return self.watermarks[part.topic.name]
            case Enriched() if (delay := self._declared(part.input)) is not None:
                return delay + part.wait
            case Deduplicated(keep="first"):
                return self._declared(part.input)
        return None if part.holds_back is None else _NOTHING
