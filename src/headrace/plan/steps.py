"""The steps of an application: each is one query, and its name identifies its state.

A step reads topics, which are created if missing, else compared with their declaration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.log import Log, Topic
from headrace.log.event_time import time_inputs
from headrace.pipeline.app import App, View
from headrace.pipeline.chains import Part, cut
from headrace.pipeline.expressions import Expression
from headrace.pipeline.output import Output
from headrace.pipeline.row_steps import needed_columns
from headrace.pipeline.stream import Late, Source, Stream, check_topic, sources
from headrace.pipeline.tables import Table
from headrace.plan.compile import column
from headrace.plan.kafka.connection import OnKafka
from headrace.plan.kafka.schemas import check_schemas
from headrace.schema.ddl import format_schema, parse_schema


@dataclass(frozen=True)
class Step:
    """One query: what it computes, the view it keeps, and the topics it writes to.

    `selective` outputs do not get everything that a batch changes.
    """

    app: str
    name: str
    stream: Stream
    view: View | None = None
    outputs: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    selective: tuple[Output, ...] = ()
    passes_on: Topic | None = None
    """The topic through which the next step of its chain reads it, if it is an inner step."""

    @property
    def computed(self) -> Stream:
        """The part that Spark computes. The store does the rest, such as ranking."""
        return self.stream.computed

    @property
    def delay(self) -> timedelta:
        """The delay of its watermark behind the frontier."""
        return self.stream.watermark_delay

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it reads."""
        return tuple(source.topic.name for source in sources(self.stream))

    @property
    def dead_letters(self) -> str:
        return dead_letters_of(self.app)


def inputs_of(step: Step) -> tuple[Source, ...]:
    """The topics of a step: those it reads, and those of its lookup tables."""
    return sources(step.stream) + tuple(s for t in step.stream.looked_up for s in sources(t))


def dead_letters_of(app: str) -> str:
    """The topic of an application's dead letters."""
    return f"{app}.dead"


def steps_of(app: App) -> list[Step]:
    """The steps of an application: one for each view, and for each stream only published."""
    steps: list[Step] = []
    published = {topic: output.stream for topic, output in app.outputs.items()}
    taken: set[str] = set()
    for view in app.views.values():
        mine = [t for t, s in published.items() if t not in taken and s == view.stream]
        late = _late_of(view.stream.computed, published, taken)
        taken |= {*mine, *late}
        selective = _selective(app, mine)
        last = Step(app.name, view.name, view.stream, view, tuple(mine), late, selective)
        steps += _chain(last, published, taken)
    for topic, stream in published.items():
        if topic not in taken and not isinstance(stream, Late):
            late = _late_of(stream.computed, published, taken)
            taken |= {topic, *late}
            selective = _selective(app, [topic])
            last = Step(app.name, topic, stream, None, (topic,), late, selective)
            steps += _chain(last, published, taken)
    if not steps:
        raise InvalidPipeline(
            f"Application {app.name!r} does nothing",
            hint="Declare a view, app.view(...), or an output, app.publish(...)",
        )
    _check_names(steps)
    for step in steps:
        _check_inputs(step)
    return steps


def _chain(last: Step, published: Mapping[str, Stream], taken: set[str]) -> list[Step]:
    """A step as it reads topics, after the inner steps of its chain."""
    stream, inner = cut(last.app, last.name, last.stream)
    steps = []
    for part in inner:
        late = _late_of(part.declared.computed, published, taken)
        taken |= {*late}
        outputs = (part.topic.name,)
        made = Step(last.app, part.name, part.stream, None, outputs, late, (), part.topic)
        steps.append(made)
    return [*steps, replace(last, stream=stream)]


def _late_of(
    stream: Stream, published: Mapping[str, Stream], taken: Collection[str]
) -> tuple[str, ...]:
    """The topics of a stream's late rows."""
    late = {t: s for t, s in published.items() if isinstance(s, Late) and t not in taken}
    return tuple(t for t, s in late.items() if s.of == stream)


def _check_names(steps: Sequence[Step]) -> None:
    names = [step.name for step in steps]
    topics = [topic for step in steps for topic in (*step.outputs, *step.late)]
    for found in (names, topics):
        twice = next((name for name in found if found.count(name) > 1), None)
        if twice is not None:
            raise InvalidPipeline(
                f"Two steps would have the name {twice!r}, which a chain uses for an inner step",
                hint="Rename the view or the topic that you gave it to",
            )


def _selective(app: App, topics: Iterable[str]) -> tuple[Output, ...]:
    return tuple(app.outputs[topic] for topic in topics if app.outputs[topic].is_selective)


def _check_inputs(step: Step) -> None:
    for source in inputs_of(step):
        if source.topic.name in (*step.outputs, *step.late, step.dead_letters):
            raise InvalidPipeline(
                f"Step {step.name!r} would read its own output in topic {source.topic.name!r}",
                hint=f"Write to another topic. See {step.stream.where}",
            )
        if source.topic.settings.compacts and source.topic.name not in _tables(step.stream):
            raise InvalidPipeline(
                f"Topic {source.topic.name!r} is compacted, so a replay would find fewer rows",
                hint=f"Set its cleanup to `delete`. See {source.where}",
            )


def _tables(stream: Stream) -> set[str]:
    """The topics that a stream reads as tables, which may be compacted."""
    mine = {stream.topic} if isinstance(stream, Table) else set()
    return mine.union(*map(_tables, (*stream.upstream, *stream.looked_up)))


def fingerprint(step: Step) -> str:
    """A digest of a step's definition, wherever it was declared."""
    return _digest(definition_of(step))


def fingerprints(step: Step) -> tuple[str, ...]:
    """The fingerprints under which the results of a step may be stored: its own comes first.

    Earlier versions stored that of all columns. A rebuild publishes nothing, and a step may have
    run before its late rows were published, so neither had the columns that only late rows have.
    """
    return (
        fingerprint(step),
        _digest(_whole_definition(step)),
        fingerprint(replace(step, late=())),
    )


def _digest(definition: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def definition_of(step: Step) -> dict[str, Any]:
    """The computation of a step and the key of its view, as plain data.

    Of each topic it has the columns that the step uses: another column changes no result.
    """
    used = needed_columns(step.computed)
    for source in sources(step.stream):
        name = source.topic.name
        # A late row has all columns of its topic.
        if (needed := used.get(name)) is not None:
            used[name] = None if step.late else {*needed, *time_inputs(source.topic)}
    tables = {name for table in step.stream.looked_up for name in map(_name, sources(table))}
    used = {name: needed for name, needed in used.items() if name not in tables}
    made: dict[str, Any] = _with_columns(_whole_definition(step), used)
    return made


def _name(source: Source) -> str:
    return source.topic.name


def _with_columns(definition: Any, used: Mapping[str, Collection[str] | None]) -> Any:
    """A definition with only the used columns in the schemas of its topics; None means all."""
    if isinstance(definition, list | tuple):
        return type(definition)(_with_columns(part, used) for part in definition)
    if not isinstance(definition, dict):
        return definition
    made = {name: _with_columns(part, used) for name, part in definition.items()}
    if (names := used.get(definition.get("topic", ""))) is not None and definition.get("schema"):
        schema = parse_schema(definition["schema"])
        made["schema"] = format_schema(pa.schema([f for f in schema if f.name in names]))
    return made


def _whole_definition(step: Step) -> dict[str, Any]:
    def text(expression: Expression) -> str:
        made = expression if isinstance(expression, str) else column(expression, step.stream.where)
        return str(made)

    return {**step.stream.definition(text), "key": step.view.key if step.view else None}


def prepare_topics(log: Log, step: Step) -> None:
    """Create the topics that a step reads, add new columns, and compare those that exist."""
    if isinstance(log, OnKafka):
        for source in inputs_of(step):
            check_schemas(log, source.topic)
    _check_foreign(log, step)
    for source in _declared(step):
        there = log.ensure_topic(source.topic)
        if extends(source.topic, there):
            there = log.alter_topic(there.name, schema=source.topic.schema)
        check_topic(there, source)


def _declared(step: Step) -> list[Source]:
    """The topics of a step that a user declared. Inner steps create those of a chain."""
    return [source for source in inputs_of(step) if not isinstance(source, Part)]


def with_schemas(log: Log, step: Step) -> Step:
    """The same step with the schemas of the topics that inner steps have created."""
    if not any(isinstance(source, Part) for source in inputs_of(step)):
        return step

    def change(stream: Stream) -> Stream:
        if not isinstance(stream, Part):
            return stream if isinstance(stream, Source) else stream.rewired(change)
        there = log.topic(stream.topic.name).topic.schema
        assert there is not None
        schema = pa.schema([there.field(name) for name in stream.columns])
        return replace(stream, topic=replace(stream.topic, schema=schema))

    return replace(step, stream=change(step.stream))


def topics_of(step: Step) -> list[Topic]:
    """The topics that a step reads, as declared."""
    return [source.topic for source in inputs_of(step)]


def check_topics(log: Log, step: Step) -> None:
    """Compare the existing topics that a step reads with their declaration."""
    if isinstance(log, OnKafka):
        for source in inputs_of(step):
            check_schemas(log, source.topic)
    there = {topic.name: topic for topic in log.topics()}
    foreign = _check_foreign(log, step)
    for source in _declared(step):
        found = there.get(source.topic.name)
        if found is None or found.name in foreign or extends(source.topic, found):
            continue
        check_topic(found, source)


def _check_foreign(log: Log, step: Step) -> Collection[str]:
    """Return the topics of a step that a run will adopt, after checking their partitions."""
    found = log.foreign_topics(source.topic.name for source in _declared(step))
    for source in _declared(step):
        name, wanted = source.topic.name, source.partitions
        if name in found and wanted not in (None, found[name]):
            raise InvalidPipeline(
                f"Topic {name!r} has {found[name]} partitions, and not the {wanted} declared",
                hint="Another program made it: leave out `partitions` to read all of them. "
                f"See {source.where}",
            )
    return found


def extends(wanted: Topic, there: Topic) -> bool:
    """True if a declaration is that of an existing topic, and has more columns after its own."""
    if wanted.schema is None or there.schema is None or there.event_time != wanted.event_time:
        return False
    known, new = len(there.schema), list(wanted.schema)[len(there.schema) :]
    same = list(wanted.schema)[:known] == list(there.schema)
    return bool(same and new and all(field.nullable for field in new))
