"""What an application does, in words: what each step reads, holds and tells, and when.

It is read off the declaration. Nothing is run, and there need not be a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.log.settings import format_span
from headrace.streams.aggregates import Aggregate
from headrace.streams.expressions import Expression
from headrace.streams.joins import Join
from headrace.streams.panes import Output
from headrace.streams.stateful import TIMER, Stateful
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
from headrace.streams.time import FOREVER, AnyWindow, Session, Sliding

if TYPE_CHECKING:
    from headrace.streams.app import App


_CLOCKS = {
    "punctuation": "what its source says, and not the highest event time",
    "arrival": "the time of its last commit, and not the highest event time",
}


@dataclass(frozen=True)
class StepExplanation:
    """A step, and what there is to say of it: a word of what it is about, and a sentence each."""

    name: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(word) for word, _ in self.facts)
        lines = [f"  {word:<{width}}  {text}" for word, text in self.facts]
        return "\n".join([f"step {self.name}", *lines])

    def __getitem__(self, word: str) -> str:
        """What is said under a word, line by line."""
        return "\n".join(text for about, text in self.facts if about == word)


@dataclass(frozen=True, repr=False)
class Explanation:
    """An application in words. It prints well."""

    app: str
    steps: tuple[StepExplanation, ...]

    def __str__(self) -> str:
        return "\n\n".join([f"application {self.app}", *map(str, self.steps)])

    def __repr__(self) -> str:
        return str(self)

    def __getitem__(self, step: str) -> StepExplanation:
        """One step."""
        return next(found for found in self.steps if found.name == step)


def explain(app: App) -> Explanation:
    """What each step of an application does."""
    steps = []
    taken: set[str] = set()
    for view in app.views.values():
        facts = [*_input(view.stream), *_results(view.stream)]
        facts.append(("keeps", f"view {view.name}, a row for each {_listed(view.key)}"))
        facts.append(("tells", f"each change of a row, in topic {app.name}.{view.name}.changes"))
        mine = [o for o in app.outputs.values() if o.topic not in taken and o.stream == view.stream]
        late = [o for o in _late(app, view.stream) if o.topic not in taken]
        taken |= {output.topic for output in (*mine, *late)}
        facts += [("publishes", f"{_panes(o, view.stream)} to topic {o.topic}") for o in mine]
        facts += [("publishes", f"late rows to topic {o.topic}") for o in late]
        steps.append(_step(app, view.name, facts))
    for output in app.outputs.values():
        if output.topic in taken or isinstance(output.stream, Late):
            continue
        stream = output.stream
        if isinstance(stream, Aggregation | Top):
            facts = [*_input(stream), *_results(stream)]
            facts.append(("publishes", f"{_panes(output, stream)} to topic {output.topic}"))
        elif isinstance(stream, Join | Stateful):
            held = _join(stream) if isinstance(stream, Join) else _stateful(stream)
            facts = [*_input(stream), *held]
            facts.append(("publishes", f"each row once, to topic {output.topic}"))
            late = _late(app, stream)
            facts += [("publishes", f"late rows to topic {o.topic}") for o in late]
        else:
            facts = [*_input(stream), ("holds", "nothing: each row by itself, as it comes")]
            facts.append(("publishes", f"each row once, to topic {output.topic}"))
        steps.append(_step(app, output.topic, facts))
    return Explanation(app.name, tuple(steps))


def _late(app: App, stream: Stream) -> list[Output]:
    """Where the late rows of a stream are published."""
    return [o for o in app.outputs.values() if isinstance(o.stream, Late) and o.stream.of == stream]


def _step(app: App, name: str, facts: list[tuple[str, str]]) -> StepExplanation:
    dead = f"rows without an event time, or ahead of the clock, go to topic {app.name}.dead"
    return StepExplanation(name, (*facts, ("dead", dead)))


# What goes in


def _input(stream: Stream) -> list[tuple[str, str]]:
    read = sources(stream)
    facts = []
    for source in read:
        topic = source.topic
        key = f", keyed by {topic.key}" if topic.key else ""
        facts.append(("reads", f"topic {topic.name}{key}, with the event time {topic.event_time}"))
        if topic.settings.frontier != "events":
            by = _CLOCKS[topic.settings.frontier]
            facts.append(("time", f"the frontier of {topic.name} is {by}"))
        if topic.settings.idle is not None:
            quiet = _span(topic.settings.idle)
            facts.append(("time", f"goes on by the clock when {topic.name} is quiet for {quiet}"))
    if len(read) > 1:
        facts.append(("time", "goes on with the topic that is furthest behind"))
    made = stream.of if isinstance(stream, Top) else stream
    if isinstance(made, Join):
        return facts + [("then", text) for part in made.upstream for text in _chain(part)]
    inner = made.input if isinstance(made, Aggregation | Stateful) else made
    return facts + [("then", text) for text in _chain(inner)]


def _chain(stream: Stream) -> list[str]:
    """What is done to each row, in order."""
    match stream:
        case Source():
            return []
        case Filter():
            return [*_chain(stream.input), f"leaves rows where {_text(stream.condition)}"]
        case Project():
            made = [
                f"{name} = {_text(e)}"
                for name, e in stream.expressions
                if e not in (name, f"`{name}`")
            ]
            kept = [name for name, e in stream.expressions if e in (name, f"`{name}`")]
            text = "; ".join(
                [f"keeps {_listed(kept)}"] * bool(kept) + [f"makes {', '.join(made)}"] * bool(made)
            )
            return [*_chain(stream.input), text]
        case Explode():
            text = f"makes a row for each element of {_text(stream.array)}, as {stream.into}"
            return [*_chain(stream.input), text]
        case Merge():
            parts = [part for found in stream.inputs for part in _chain(found)]
            return [*parts, f"takes the rows of {len(stream.inputs)} streams together"]
        case _:
            return [f"goes through {type(stream).__name__.lower()}"]


# What is held, and until when


def _results(stream: Aggregation | Top) -> list[tuple[str, str]]:
    if isinstance(stream, Aggregation):
        return _aggregation(stream)
    among = _listed(stream.group) if stream.group else "board"
    ranked = f"the {stream.n} with the highest {stream.by} of each {among}"
    return [*_aggregation(stream.of), ("ranks", ranked)]


def _aggregation(step: Aggregation) -> list[tuple[str, str]]:
    window, lateness = step.window, step.lateness
    end = _end_of(window)
    by_events = all(s.topic.settings.frontier == "events" for s in sources(step))
    now = "the highest event time" if by_events else "the frontier"
    made = ", ".join(f"{name} = {_made(aggregate)}" for name, aggregate in step.aggregates)
    held = step.patience + window.settles
    delay, patience = _span(lateness.delay), _span(step.patience)
    facts = [
        ("counts", f"by {_listed(step.by)}: {made}"),
        ("window", _window(window)),
        (
            "lateness",
            f"a delay of {delay} and a grace of {_span(lateness.grace)}: "
            f"the watermark is {now} less {delay}",
        ),
        (
            "holds",
            f"each {_listed(step.by)} and window, until {now} is {_span(held)} after {end}",
        ),
        ("late", f"is a row that comes when {now} is {patience} after {end}"),
    ]
    if step.emit == "final":
        facts.append(
            ("emits", f"once, when nothing can change any more: {_span(held)} after {end}")
        )
    else:
        facts.append(("emits", f"from the first row on; on time {delay} after {end}, then amended"))
    return facts


def _join(join: Join) -> list[tuple[str, str]]:
    equal = ", ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in join.on)
    left, right = (_listed([s.topic.name for s in sources(part)]) for part in join.upstream)
    before, after, delay = map(_span, (join.before, join.after, join.delay))
    held = [
        ("holds", f"each row of {name}, until {other} is {_span(wait + join.delay)} after it")
        for name, other, wait in ((left, right, join.after), (right, left, join.before))
    ]
    alone = {
        "inner": "pairs only",
        "left": f"pairs, and rows of {left} that have no other, once none can come",
        "right": f"pairs, and rows of {right} that have no other, once none can come",
        "full": "pairs, and rows that have no other, once none can come",
        "anti": f"rows of {left} that have no other, once none can come",
    }
    return [
        ("joins", f"{left} with {right} where {equal} is the same"),
        ("within", f"{before} before to {after} after the row of {left}"),
        *held,
        ("late", f"is a row that comes when the highest event time of its topic is {delay} ahead"),
        ("emits", alone[join.how]),
    ]


def _stateful(step: Stateful) -> list[tuple[str, str]]:
    name, which = step.identity
    delay, ttl, keys = _span(step.delay), _span(step.ttl), _listed(step.by)
    waits = f"each row until the highest event time is {delay} past it, and "
    turn = "the order of event time" if step.order == "time" else "the order of the log"
    failing = "the pipeline stops" if step.on_error == "stop" else "its rows are dead letters"
    timer = [("timer", "a key comes again when the watermark has passed its timer")]
    return [
        ("calls", f"{name} ({which}) with the rows of many {keys} at once, in {turn}"),
        (
            "holds",
            f"{waits * (step.order == 'time')}{', '.join(step.kept.names)} of each {keys}, until "
            f"the watermark is {ttl} past its newest row, in {step.buckets} buckets",
        ),
        *timer * (TIMER in step.kept.names),
        ("late", f"is a row that comes when the highest event time of its topic is {delay} ahead"),
        ("fails", f"for a key of which the function raises: {failing}"),
    ]


def _window(window: AnyWindow) -> str:
    match window:
        case Session() if window.gap >= FOREVER:
            return "none: totals that go on for ever"
        case Session():
            gap = _span(window.gap)
            return f"a session: rows that follow each other in less than {gap}, and {gap} after"
        case Sliding():
            return f"the {_span(window.size)} up to each row"
        case _:
            kind = "tumbling" if window.size == window.every else "hopping"
            every = "" if window.size == window.every else f", one every {_span(window.every)}"
            offset = f", from {_span(window.offset)} on" if window.offset else ""
            return f"{kind}, {_span(window.size)}{every}{offset}"


def _end_of(window: AnyWindow) -> str:
    match window:
        case Session():
            return "the end of its session"
        case Sliding():
            return "its row"
        case _:
            return "the end of its window"


def _made(aggregate: Aggregate) -> str:
    if aggregate.kind == "expression":
        return aggregate.of or ""
    more = "" if aggregate.parameter is None else f", {aggregate.parameter:g}"
    return f"{aggregate.kind}({aggregate.of or '*'}{more})"


def _panes(output: Output, stream: Aggregation | Top) -> str:
    made = stream.of if isinstance(stream, Top) else stream
    if made.emit == "final":
        return "final panes"
    match output.early:
        case "never":
            panes = "on-time and late panes"
        case "batch":
            panes = "early, on-time and late panes"
        case int():
            panes = f"early panes every {output.early:,} rows, on-time and late ones"
        case _:
            panes = f"early panes every {_span(output.early)} at most, on-time and late ones"
    return panes + (", each after taking back the one before," if output.retractions else "")


def _text(expression: Expression) -> str:
    return expression if isinstance(expression, str) else "a Column made in Python"


def _span(span: timedelta) -> str:
    return format_span(span)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
