"""Chains: steps that read the results of other steps.

A derived row has no commit of its own, so results go through a topic that headrace makes itself.
The second step then has a frontier, late rows and a law of its own. A chain is declared as one
stream, and cut into steps here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.log.settings import MAX_RECORD_BYTES, TopicSettings
from headrace.log.state import Topic
from headrace.pipeline.output import Output
from headrace.pipeline.row_steps import Project
from headrace.pipeline.stream import Source, Stream, Text, sources
from headrace.pipeline.tables import Table
from headrace.pipeline.where import Where

_SETTINGS = TopicSettings(max_record_bytes=MAX_RECORD_BYTES, skew=None)
"""Rows were judged by the clock before, and the end of a drained window may be ahead of it."""


@dataclass(frozen=True)
class Part(Source):
    """The results of another step, in a topic of headrace's own.

    The topic has no schema until a run has planned the step that writes to it.
    """

    of: Stream = field(kw_only=True)

    def definition(self, text: Text) -> dict[str, Any]:
        topic = {"topic": self.topic.name, "event_time": self.topic.event_time}
        return {**topic, "part": self.of.definition(text)}


@dataclass(frozen=True)
class Inner:
    """A step in the middle of a chain: its name, what it computes, and the topic it writes to.

    `declared` is the stream as the user wrote it, which late rows refer to.
    """

    name: str
    stream: Stream
    topic: Topic
    declared: Stream


def cut(app: str, step: str, stream: Stream) -> tuple[Stream, tuple[Inner, ...]]:
    """The last step of a chain as it reads topics, and the steps before it, first ones first.

    The names of inner steps are made of the step's own and of their roles, so that state never
    hangs on a position.
    """
    inner: list[Inner] = []

    def part(of: Stream, path: Sequence[str]) -> Part:
        name = ".".join((step, *path)) if path else f"{step}.part"
        settled = of.settled
        made, before = cut(app, name, settled)
        topic = Topic(f"{app}.{name}", 1, None, None, settled.time, _SETTINGS)
        inner.extend((*before, Inner(name, made, topic, of)))
        return Part(of.columns, of.where, topic, of=made)

    def rewired(here: Stream, path: Sequence[str]) -> Stream:
        roles: dict[int, list[str]] = {}
        for one, name in zip(here.upstream, here.roles, strict=True):
            roles.setdefault(id(one), []).append(name)  # it may read the same results twice

        def change(upstream: Stream) -> Stream:
            role = roles[id(upstream)].pop(0)
            way = (*path, role) if role else path
            if _ends_step(here, upstream):
                return part(upstream, way)
            return rewired(upstream, way)

        return here if isinstance(here, Source) else here.rewired(change)

    return rewired(stream, ()), tuple(inner)


def _ends_step(reader: Stream, upstream: Stream) -> bool:
    """True if a stream is computed by a step of its own, before the one that reads it."""
    if upstream.is_result:
        return upstream is not reader.computed
    if not isinstance(reader, Table):
        return False
    # The versions of a table are ordered by their places, so each is a row of a topic.
    while isinstance(upstream, Project):
        upstream = upstream.input
    return not isinstance(upstream, Source) and not upstream.is_result


def parts_of(stream: Stream) -> Iterator[Part]:
    """The topics of inner steps that a stream reads."""
    return (source for source in sources(stream) if isinstance(source, Part))


def check_chain(stream: Stream, where: Where) -> None:
    """Check that every step of a chain can be read by the next one."""
    for part in stream.upstream:
        if part.is_result and part is not stream.computed:
            check_readable(part, where)
        check_chain(part, where)


def check_readable(stream: Stream, where: Where) -> None:
    """Check that other steps can read a stream, if it or what it is made of is a result."""
    for found in read_directly(stream):
        if isinstance(found, Source):
            continue
        if found.unreadable is not None:
            why, instead = found.unreadable
            raise InvalidPipeline(
                f"Another step cannot read {found.noun}: {why}", hint=f"{instead}. See {where}"
            )
        if found.time is None:
            raise InvalidPipeline(
                f"Another step cannot read {found.noun} whose rows have lost their event time",
                hint="Keep the columns of the event time unchanged; hr.stateful(...) names that of "
                f"its output as event_time. See {where}",
            )
        found.check_output(Output("the next step", found.settled, where))


def read_directly(stream: Stream) -> list[Stream]:
    """The topics and results that a stream is made of, without what those are made of."""
    if isinstance(stream, Source) or stream.is_result:
        return [stream]
    return [found for part in stream.upstream for found in read_directly(part)]


def topics_read(*streams: Stream) -> list[Source]:
    """The topics that streams read directly, not through the results of another step."""
    found = [part for stream in streams for part in read_directly(stream)]
    return [part for part in found if isinstance(part, Source)]
