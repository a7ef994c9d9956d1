"""The steps of an application: each is one query, and its name identifies its state.

A step reads topics, which are created if missing, else compared with their declaration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.log import Log, Topic
from headrace.log.event_time import time_inputs
from headrace.pipeline.app import App, View
from headrace.pipeline.expressions import Expression
from headrace.pipeline.output import Output
from headrace.pipeline.row_steps import needed_columns
from headrace.pipeline.stream import Late, Source, Stream, sources
from headrace.pipeline.tables import Table
from headrace.pipeline.where import Where
from headrace.plan.compile import column
from headrace.plan.kafka.connection import OnKafka, connection_of
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
    steps = []
    published = {topic: output.stream for topic, output in app.outputs.items()}
    taken: set[str] = set()
    for view in app.views.values():
        mine = [t for t, s in published.items() if t not in taken and s == view.stream]
        late = [
            t
            for t, s in published.items()
            if t not in taken and _is_late_of(s, view.stream.computed)
        ]
        taken |= {*mine, *late}
        selective = _selective(app, mine)
        steps.append(
            Step(app.name, view.name, view.stream, view, tuple(mine), tuple(late), selective)
        )
    for topic, stream in published.items():
        if topic not in taken and not isinstance(stream, Late):
            late = [t for t, s in published.items() if t not in taken and _is_late_of(s, stream)]
            taken |= {topic, *late}
            selective = _selective(app, [topic])
            steps.append(Step(app.name, topic, stream, None, (topic,), tuple(late), selective))
    if not steps:
        raise InvalidPipeline(
            f"Application {app.name!r} does nothing",
            hint="Declare a view, app.view(...), or an output, app.publish(...)",
        )
    for step in steps:
        _check_inputs(step)
    return steps


def _is_late_of(stream: Stream, other: Stream | None) -> bool:
    return isinstance(stream, Late) and stream.of == other


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


def fingerprints(step: Step) -> tuple[str, str]:
    """The fingerprints of a step: its own, and that of earlier versions, with unused columns."""
    return fingerprint(step), _digest(_whole_definition(step))


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
    if (names := used.get(definition.get("topic", ""))) is not None and definition["schema"]:
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
        connection_of(log)  # before anything is created: Spark may not support the settings
        for source in inputs_of(step):
            check_schemas(log, source.topic)
    _check_foreign(log, step)
    for source in inputs_of(step):
        there = log.ensure_topic(source.topic)
        if extends(source.topic, there):
            there = log.alter_topic(there.name, schema=source.topic.schema)
        _check_topic(there, source.topic, source.where)


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
    for source in inputs_of(step):
        found = there.get(source.topic.name)
        if found is None or found.name in foreign or extends(source.topic, found):
            continue
        _check_topic(found, source.topic, source.where)


def _check_foreign(log: Log, step: Step) -> Collection[str]:
    """Return the topics of a step that a run will adopt, after checking their partitions."""
    found = log.foreign_topics(source.topic.name for source in inputs_of(step))
    for source in inputs_of(step):
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


def _check_topic(there: Topic, wanted: Topic, where: Where) -> None:
    assert wanted.schema is not None
    fields = {} if there.schema is None else {field.name: field.type for field in there.schema}
    wrong = [f.name for f in wanted.schema if fields.get(f.name) != f.type]
    if wrong or there.event_time != wanted.event_time:
        schema = "raw bytes" if there.schema is None else format_schema(there.schema)
        raise InvalidPipeline(
            f"Topic {there.name!r} is not as declared: it has {schema}, with the event time "
            f"{there.event_time!r}",
            hint=f"Change the declaration to match, or use another topic. See {where}",
        )
