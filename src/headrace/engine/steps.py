"""An application as steps: each is one streaming query, with a name that its state hangs on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.clock import micros
from headrace.engine.compile import column
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.schema.ddl import format_schema
from headrace.streams.aggregates import Aggregate
from headrace.streams.app import App, View
from headrace.streams.expressions import Expression
from headrace.streams.joins import Join
from headrace.streams.panes import Output
from headrace.streams.stateful import Stateful
from headrace.streams.stream import (
    Aggregation,
    Explode,
    Filter,
    Late,
    Merge,
    Project,
    Source,
    Stream,
    Top,
    sources,
)
from headrace.streams.time import AnyWindow, Session, Sliding, Window


@dataclass(frozen=True)
class Step:
    """One query: what it computes, the view it keeps, and the topics it writes to.

    `choosy` are those of its outputs that do not simply get all that a batch has changed.
    """

    app: str
    name: str
    stream: Stream
    view: View | None = None
    outputs: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    choosy: tuple[Output, ...] = ()

    @property
    def aggregation(self) -> Aggregation | None:
        return self.computed if isinstance(self.computed, Aggregation) else None

    @property
    def join(self) -> Join | None:
        return self.stream if isinstance(self.stream, Join) else None

    @property
    def stateful(self) -> Stateful | None:
        return self.stream if isinstance(self.stream, Stateful) else None

    @property
    def top(self) -> Top | None:
        """What is shown of the aggregation, if not all of it."""
        return self.stream if isinstance(self.stream, Top) else None

    @property
    def computed(self) -> Stream:
        """What Spark computes. To rank it is for whoever keeps it."""
        return self.stream.of if isinstance(self.stream, Top) else self.stream

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it reads."""
        return tuple(source.topic.name for source in sources(self.stream))

    @property
    def dead_letters(self) -> str:
        return dead_letters_of(self.app)


def dead_letters_of(app: str) -> str:
    """The topic that an application's dead letters go to."""
    return f"{app}.dead"


def steps_of(app: App) -> list[Step]:
    """The steps of an application: a view each, and the streams that are only published."""
    steps = []
    published = {topic: output.stream for topic, output in app.outputs.items()}
    taken: set[str] = set()
    for view in app.views.values():
        mine = [t for t, s in published.items() if t not in taken and s == view.stream]
        late = [
            t for t, s in published.items() if t not in taken and _is_late_of(s, view.aggregation)
        ]
        taken |= {*mine, *late}
        choosy = _choosy(app, mine)
        steps.append(Step(app.name, view.name, view.stream, view, tuple(mine), tuple(late), choosy))
    for topic, stream in published.items():
        if topic not in taken and not isinstance(stream, Late):
            late = [t for t, s in published.items() if t not in taken and _is_late_of(s, stream)]
            taken |= {topic, *late}
            choosy = _choosy(app, [topic])
            steps.append(Step(app.name, topic, stream, None, (topic,), tuple(late), choosy))
    if not steps:
        raise InvalidPipeline(
            f"Application {app.name!r} does nothing",
            hint="Declare a view, app.view(...), or an output, app.publish(...)",
        )
    for step in steps:
        _check_inputs(step)
    return steps


def _is_late_of(stream: Stream, other: Stream) -> bool:
    return isinstance(stream, Late) and stream.of == other


def _choosy(app: App, topics: Iterable[str]) -> tuple[Output, ...]:
    return tuple(app.outputs[topic] for topic in topics if app.outputs[topic].remembers)


def _check_inputs(step: Step) -> None:
    for source in sources(step.stream):
        if source.topic.name in (*step.outputs, *step.late, step.dead_letters):
            raise InvalidPipeline(
                f"Step {step.name!r} would read what it writes to {source.topic.name!r}",
                hint=f"Write to another topic. See {step.stream.where}",
            )
        if source.topic.settings.compacts:
            raise InvalidPipeline(
                f"Topic {source.topic.name!r} is compacted, so a replay would find fewer rows",
                hint=f"Let its cleanup be `delete`. See {source.where}",
            )


def fingerprint(step: Step) -> str:
    """A digest of what the step computes. Where it was declared makes no difference."""
    return hashlib.sha256(json.dumps(definition_of(step), sort_keys=True).encode()).hexdigest()


def definition_of(step: Step) -> dict[str, Any]:
    """What a step computes and by which key it is kept, as plain data."""
    return {**describe(step.stream), "key": step.view.key if step.view else None}


def describe(stream: Stream) -> dict[str, Any]:
    """What a stream computes, as plain data."""
    match stream:
        case Source(topic=topic):
            schema = format_schema(topic.schema) if topic.schema is not None else None
            return {"topic": topic.name, "schema": schema, "event_time": topic.event_time}
        case Filter():
            return {"filter": _text(stream.condition, stream), "of": describe(stream.input)}
        case Project():
            made = [[name, _text(made, stream)] for name, made in stream.expressions]
            return {"project": made, "of": describe(stream.input)}
        case Explode():
            array = [_text(stream.array, stream), stream.into]
            return {"explode": array, "of": describe(stream.input)}
        case Merge():
            return {"merge": [describe(part) for part in stream.inputs]}
        case Aggregation(window=window, lateness=lateness):
            return {
                "by": stream.by,
                "window": _describe_window(window),
                "lateness": [micros(lateness.delay), micros(lateness.grace)],
                "emit": stream.emit,
                "aggregates": [
                    [name, made.kind, made.of, made.parameter, *_more(made)]
                    for name, made in stream.aggregates
                ],
                "of": describe(stream.input),
            }
        case Join():
            return {
                "join": [stream.how, *(list(pair) for pair in stream.on)],
                "bounds": [micros(stream.before), micros(stream.after), micros(stream.delay)],
                "prefix": stream.prefix,
                "merge": [describe(stream.left), describe(stream.right)],
            }
        case Stateful():
            return {
                "function": list(stream.identity),
                "by": stream.by,
                "state": format_schema(stream.kept),
                "output": format_schema(stream.output) + " with the key" * stream.with_key,
                "delay": micros(stream.delay),
                "ttl": micros(stream.ttl),
                "order": stream.order,
                "buckets": stream.buckets,
                "of": describe(stream.input),
            }
        case Top():
            return {"top": [stream.n, stream.by, *stream.within], **describe(stream.of)}
        case _:
            raise TypeError(f"no such stream: {stream}")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another between two definitions of a step, in words."""
    found = []
    flat_before, flat_now = _flat(before), _flat(now)
    for name, what in _WORDS.items():
        old, new = flat_before.get(name), flat_now.get(name)
        if old == new:
            continue
        if name in ("aggregates", "project"):
            found += _named("aggregate" if name == "aggregates" else "column", old or (), new or ())
        elif name == "merge" and old is not None and new is not None and len(old) == len(new):
            parts = enumerate(zip(old, new, strict=True), 1)
            changed = [(n, differences(was, now)) for n, (was, now) in parts if was != now]
            found += [f"in merged stream {n} {told}" for n, words in changed for told in words]
        elif name == "merge" and old is not None and new is not None:
            found.append(f"{len(old)} streams were merged and {len(new)} are")
        elif old is None or new is None:
            found.append(f"the {what} is {'new' if old is None else 'gone'}")
        else:
            found.append(f"the {what} was {_shown(name, old)} and is {_shown(name, new)}")
    return found or ["its steps are in another order"]


def _flat(definition: Mapping[str, Any]) -> dict[str, Any]:
    """All that is said in a chain of steps, by what is said. Later steps of a kind come first."""
    found: dict[str, Any] = {}
    here: Mapping[str, Any] | None = definition
    while here is not None:
        for name, value in here.items():
            if name in ("filter", "explode", "project") and name in found:
                found[name] = [*_several(found[name]), *_several(value)]
            elif name != "of":
                found[name] = value
        here = here.get("of")
    return found


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_WORDS = {
    "topic": "topic", "schema": "schema of the topic", "event_time": "event time",
    "top": "ranking", "by": "grouping", "key": "key of the view",
    "window": "window", "lateness": "lateness", "emit": "emission", "aggregates": "aggregates",
    "filter": "filter", "project": "columns", "explode": "exploded array", "merge": "merged stream",
    "function": "function", "state": "state", "output": "output", "delay": "delay", "ttl": "ttl",
    "order": "order", "buckets": "number of buckets",
}  # fmt: skip


def _named(what: str, old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    """What became of things that have a name in front."""
    before, now = ({entry[0]: entry[1:] for entry in entries} for entries in (old, new))
    return [
        *(f"{what} {name!r} is new" for name in now if name not in before),
        *(f"{what} {name!r} is gone" for name in before if name not in now),
        *(
            f"{what} {name!r} is computed differently"
            for name in now
            if name in before and list(now[name]) != list(before[name])
        ),
    ]


def _shown(name: str, value: Any) -> str:
    if name == "lateness":
        delay, grace = (_span(part) for part in value)
        return f"{delay} and {grace} of grace"
    if name in ("delay", "ttl"):
        return _span(value)
    if name == "function":
        return " of ".join(reversed(value))
    if name == "window":
        kind, *parts = value if isinstance(value[0], str) else ("", *value)
        spans = [_span(part) for part in parts]
        if kind:
            return f"{kind} {spans[0]}"
        size, every, offset = spans
        kind = f"tumbling {size}" if size == every else f"hopping {size} every {every}"
        return kind + (f" from {offset}" if parts[2] else "")
    if name == "top":
        n, by, *within = value
        return f"the top {n} by {by!r}" + (f" within {', '.join(within)}" if within else "")
    return ", ".join(map(str, value)) if isinstance(value, list) else repr(value)


def _span(span: int) -> str:
    return format_span(timedelta(microseconds=span))


def _more(made: Aggregate) -> list[int]:
    return [] if made.tracked is None else [made.tracked]


def _describe_window(window: AnyWindow) -> list[Any]:
    match window:
        case Window():
            return [micros(window.size), micros(window.every), micros(window.offset)]
        case Sliding():
            return ["sliding", micros(window.size)]
        case Session():
            return ["session", micros(window.gap)]


def _text(expression: Expression, stream: Stream) -> str:
    return expression if isinstance(expression, str) else str(column(expression, stream.where))
