"""Explain an application in words: what each step reads, holds and emits, and when.

It needs only the declaration. Nothing is run, and no log is needed.
"""

from __future__ import annotations

from headrace.log import Log
from headrace.log.settings import format_span
from headrace.operators.contract import Fact, listed
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.pipeline.chains import cut
from headrace.pipeline.explanation import Explanation, StepExplanation
from headrace.pipeline.expressions import Expression
from headrace.pipeline.output import Output
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import Late, Source, Stream, sources
from headrace.pipeline.tables import Table

_CLOCKS = {
    "punctuation": "the punctuation of its source",
    "arrival": "the time of its last commit",
}


def explain(app: App, log: Log | None = None) -> Explanation:
    """Explain each step of an application; with a log, estimate how much it will hold."""
    steps = []
    taken: set[str] = set()
    for view in app.views.values():
        kept = [
            ("keeps", f"view {view.name}, a row for each {listed(view.key)}"),
            ("changelog", f"each change of a row, in topic {app.name}.{view.name}.changes"),
        ]
        mine = [o for o in app.outputs.values() if o.topic not in taken and o.stream == view.stream]
        steps += _chain(app, view.name, view.stream, kept, mine, taken, log)
    for output in app.outputs.values():
        if output.topic not in taken and not isinstance(output.stream, Late):
            steps += _chain(app, output.topic, output.stream, [], [output], taken, log)
    return Explanation(app.name, tuple(steps))


def _chain(
    app: App,
    name: str,
    stream: Stream,
    kept: list[Fact],
    outputs: list[Output],
    taken: set[str],
    log: Log | None,
) -> list[StepExplanation]:
    """Explain a step, after the inner steps of its chain."""
    last, inner = cut(app.name, name, stream)
    steps = []
    for part in inner:
        passed = Output(part.topic.name, part.stream, part.stream.where)
        facts = _facts(part.stream, log)
        steps.append(_step(app, part.name, part.declared, facts, [passed], taken))
    return [*steps, _step(app, name, stream, [*_facts(last, log), *kept], outputs, taken)]


def _step(
    app: App,
    name: str,
    stream: Stream,
    facts: list[Fact],
    outputs: list[Output],
    taken: set[str],
) -> StepExplanation:
    """Explain a step with its outputs, and add their topics to `taken`."""
    late = [
        output
        for output in app.outputs.values()
        if output.topic not in taken
        and isinstance(output.stream, Late)
        and output.stream.of == stream.computed
    ]
    taken |= {output.topic for output in (*outputs, *late)}
    dead = f"rows without an event time, or ahead of the clock, go to topic {app.name}.dead"
    return StepExplanation(
        name,
        (
            *facts,
            *(
                ("publishes", f"{operator_of(o.stream).published(o)} to topic {o.topic}")
                for o in outputs
            ),
            *(("publishes", f"late rows to topic {o.topic}") for o in late),
            ("dead", dead),
        ),
    )


def _facts(stream: Stream, log: Log | None) -> list[Fact]:
    return [*_input(stream), *operator_of(stream).facts(stream, log)]


def _input(stream: Stream) -> list[Fact]:
    read = sources(stream)
    facts = []
    for source in read:
        topic = source.topic
        key = f", keyed by {topic.key}" if topic.key else ""
        facts.append(("reads", f"topic {topic.name}{key}, with the event time {topic.event_time}"))
        if topic.settings.frontier != "events":
            by = _CLOCKS[topic.settings.frontier]
            facts.append(
                ("time", f"the frontier of {topic.name} is {by}, not the highest event time")
            )
        if topic.settings.idle is not None:
            quiet = format_span(topic.settings.idle)
            facts.append(("time", f"follows the clock when {topic.name} is idle for {quiet}"))
    if len(read) > 1 and stream.follows_slowest:
        facts.append(("time", "follows the slowest topic"))
    parts = stream.computed.upstream if stream.is_result else (stream,)
    return facts + [("then", text) for part in parts for text in _changes(part)]


def _changes(stream: Stream) -> list[str]:
    """The operations on each row, in order."""
    before = [text for part in stream.upstream for text in _changes(part)]
    match stream:
        case Source() | Table():
            return before
        case Filter():
            return [*before, f"keeps rows where {_text(stream.condition)}"]
        case Project():
            made = [
                f"{name} = {_text(e)}"
                for name, e in stream.expressions
                if e not in (name, f"`{name}`")
            ]
            kept = [name for name, e in stream.expressions if e in (name, f"`{name}`")]
            text = "; ".join(
                [f"keeps {listed(kept)}"] * bool(kept)
                + [f"computes {', '.join(made)}"] * bool(made)
            )
            return [*before, text]
        case Explode():
            text = f"explodes {_text(stream.array)} into one row per element, as {stream.into}"
            return [*before, text]
        case Merge():
            return [*before, f"merges {len(stream.inputs)} streams"]
        case _:
            return [*before, operator_of(stream).step(stream)]


def _text(expression: Expression) -> str:
    return expression if isinstance(expression, str) else "a Column made in Python"
