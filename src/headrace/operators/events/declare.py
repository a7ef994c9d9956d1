"""Declaration of a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidDomain, InvalidPipeline, UnreadableEvent
from headrace.eventsourcing.declare import EventType
from headrace.eventsourcing.domain import Domain
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.opening import PLACES, Opening
from headrace.eventsourcing.reading import EventReading
from headrace.pipeline.app import App
from headrace.pipeline.arguments import declaration
from headrace.pipeline.row_steps import check_new_names
from headrace.pipeline.stream import RowStep, Source, Stream, Text, Wanted
from headrace.pipeline.where import caller
from headrace.schema.ddl import format_type

ENVELOPE = ("aggregate", "version", "type", "at", "id", "command", "metadata", "tags")
"""The columns that every stored event has, beside its fields."""

STORED = ("type", "schema", "data")
"""The columns that its fields are read from."""


@dataclass(frozen=True)
class Events(RowStep):
    """The events of some types, each field a column."""

    reading: EventReading = field(repr=False)
    prefix: str
    opening: Opening | None = field(default=None, repr=False, compare=False)
    package = "headrace.operators.events"
    judges_rows = True

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns of the fields, with their types."""
        return {self.prefix + name: kind for name, kind in self.reading.fields.items()}

    def type_of(self, column: str) -> pa.DataType | None:
        kinds = {name.lower(): kind for name, kind in self.fields.items()}
        return kinds.get(column.lower()) or self.input.type_of(column)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        beside = set(ENVELOPE) if wanted is None else wanted & set(ENVELOPE)
        if self.opening is not None:
            beside |= set(PLACES)
        yield self.input, beside | set(STORED)

    def opened(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A stored event, with its personal fields opened if the stream does that."""
        return row if self.opening is None else self.opening.row(row)

    def refusal(self, row: Mapping[str, Any]) -> str | None:
        try:
            if self.reading.wants(row):
                self.reading.row(self.opened(row))
        except UnreadableEvent as error:
            return error.message
        return None

    def definition(self, text: Text) -> dict[str, Any]:
        kinds = [[name, format_type(kind)] for name, kind in self.fields.items()]
        types = [
            [one.name, one.version, [[str(step) for step in steps] for steps in one.chain]]
            for one in self.reading.types
        ]
        opened = {} if self.opening is None else {"opened": True}
        return {"events": [types, kinds], **opened, "of": self.input.definition(text)}


@declaration
def stream(
    app: App, domain: Domain, *types: str, prefix: str = "", keys: KeyStore | None = None
) -> Events:
    """The events of some types of a domain, or of all, with a column for each field.

    `prefix` goes in front of the names of fields. Fields that an event's type lacks are null.
    Personal fields are sealed, unless there are `keys` to open them with.
    """
    where = caller()
    known = {one.name: one for one in domain.event_types}
    try:
        chosen: tuple[EventType, ...] = tuple(
            domain.event_type(name) for name in dict.fromkeys(types or known)
        )
        reading = EventReading(chosen, tuple(known))
        fields = [prefix + name for name in reading.fields]
        _ = reading.columns
    except (InvalidDomain, UnreadableEvent) as error:
        raise InvalidPipeline(error.message, hint=f"{error.hint}. See {where}") from None
    check_new_names(fields, where)
    taken = {name.lower() for name in ENVELOPE}
    for name in fields:
        if name.lower() in taken:
            raise InvalidPipeline(
                f"The field {name!r} of an event has the name of a column that all events have",
                hint=f"Put a prefix in front of fields: stream(..., prefix='my_'). See {where}",
            )
    topic = domain.events
    if app.topics.setdefault(topic.name, topic) != topic:
        raise InvalidPipeline(
            f"Topic {topic.name!r} is declared twice, differently",
            hint=f"The domain declares it already. See {where}",
        )
    assert topic.schema is not None
    source = Source(tuple(topic.schema.names), where, topic, topic.partitions, app.log)
    opening = None if keys is None else Opening(keys)
    return Events((*ENVELOPE, *fields), where, source, reading, prefix, opening)
