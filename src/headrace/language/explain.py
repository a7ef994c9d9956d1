"""What an application does, in words: what each step reads, holds and tells, and when.

It is read off the declaration. Nothing is run, and there need not be a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.language.explain_joins import enriched_facts, join_facts, listed, stateful_facts
from headrace.log import Log
from headrace.log.settings import format_span
from headrace.operators.alerts.declare import Alerts
from headrace.operators.alerts.declare import explained as alert_facts
from headrace.operators.dedup.declare import Deduplicated, explained
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stream_join.declare import Join
from headrace.operators.stream_join.holding import held_by
from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_join.explain import table_join_facts
from headrace.operators.table_lookup.declare import Enriched, Table
from headrace.operators.window.aggregates import Aggregate
from headrace.pipeline.expressions import Expression
from headrace.pipeline.output import Output
from headrace.pipeline.stream import (
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
from headrace.pipeline.time import FOREVER, AnyWindow, Session, Sliding

if TYPE_CHECKING:
    from headrace.pipeline.app import App


_CLOCKS = {
    "punctuation": "what its source says, and not the highest event time",
    "arrival": "the time of its last commit, and not the highest event time",
}


_KEYED = Aggregation | Deduplicated | Stateful | Alerts
"""What is made of rows by their keys."""


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


def explain(app: App, log: Log | None = None) -> Explanation:
    """What each step of an application does, and by what a log has, how much it will hold."""
    steps = []
    taken: set[str] = set()
    for view in app.views.values():
        facts = [*_input(view.stream), *_results(view.stream)]
        facts.append(("keeps", f"view {view.name}, a row for each {listed(view.key)}"))
        facts.append(("tells", f"each change of a row, in topic {app.name}.{view.name}.changes"))
        mine = [o for o in app.outputs.values() if o.topic not in taken and o.stream == view.stream]
        late = [o for o in _late(app, view.stream) if o.topic not in taken]
        taken |= {output.topic for output in (*mine, *late)}
        facts += [("publishes", f"{_panes(o)} to topic {o.topic}") for o in mine]
        facts += [("publishes", f"late rows to topic {o.topic}") for o in late]
        steps.append(_step(app, view.name, facts))
    for output in app.outputs.values():
        if output.topic in taken or isinstance(output.stream, Late):
            continue
        stream = output.stream
        if isinstance(stream, Aggregation | Top):
            facts = [*_input(stream), *_results(stream)]
            facts.append(("publishes", f"{_panes(output)} to topic {output.topic}"))
        elif isinstance(stream, Join | Deduplicated | Stateful | Alerts):
            facts = [*_input(stream), *_held(stream, log)]
            facts.append(("publishes", f"each row once, to topic {output.topic}"))
            late = _late(app, stream)
            facts += [("publishes", f"late rows to topic {o.topic}") for o in late]
        elif isinstance(stream, Enriched):
            facts = [*_input(stream), *enriched_facts(stream)]
            facts.append(("publishes", f"each row, to topic {output.topic}"))
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
    if len(read) > 1 and not isinstance(stream, TableJoin):
        facts.append(("time", "goes on with the topic that is furthest behind"))
    made = stream.of if isinstance(stream, Top) else stream
    if isinstance(made, Join | Enriched | TableJoin):
        return facts + [("then", text) for part in made.upstream for text in _chain(part)]
    inner = made.input if isinstance(made, _KEYED) else made
    return facts + [("then", text) for text in _chain(inner)]


def _chain(stream: Stream) -> list[str]:
    """What is done to each row, in order."""
    match stream:
        case Source():
            return []
        case Table():
            return _chain(stream.input)
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
                [f"keeps {listed(kept)}"] * bool(kept) + [f"makes {', '.join(made)}"] * bool(made)
            )
            return [*_chain(stream.input), text]
        case Explode():
            text = f"makes a row for each element of {_text(stream.array)}, as {stream.into}"
            return [*_chain(stream.input), text]
        case Fetched():
            return [*_chain(stream.input), f"asks for each batch of {stream.on[0]}, elsewhere"]
        case Merge():
            parts = [part for found in stream.inputs for part in _chain(found)]
            return [*parts, f"takes the rows of {len(stream.inputs)} streams together"]
        case Table():
            return _chain(stream.input)
        case _:
            return [f"goes through {type(stream).__name__.lower()}"]


# What is held, and until when


def _results(stream: Aggregation | Top | TableJoin) -> list[tuple[str, str]]:
    if isinstance(stream, TableJoin):
        return table_join_facts(stream)
    if isinstance(stream, Aggregation):
        return _aggregation(stream)
    among = listed(stream.group) if stream.group else "board"
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
        ("counts", f"by {listed(step.by)}: {made}"),
        ("window", _window(window)),
        (
            "lateness",
            f"a delay of {delay} and a grace of {_span(lateness.grace)}: "
            f"the watermark is {now} less {delay}",
        ),
        (
            "holds",
            f"each {listed(step.by)} and window, until {now} is {_span(held)} after {end}",
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


def _held(
    stream: Join | Deduplicated | Stateful | Alerts, log: Log | None
) -> list[tuple[str, str]]:
    match stream:
        case Deduplicated():
            return explained(stream)
        case Stateful():
            return stateful_facts(stream)
        case Alerts():
            return alert_facts(stream)
        case _:
            known = [] if log is None else held_by(stream, log)
            return [*join_facts(stream), *(("state", str(held)) for held in known)]


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


def _panes(output: Output) -> str:
    if isinstance(output.stream, Aggregation | Top) and output.stream.emit == "final":
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
