"""Events, commands and snapshots as rows of their topics, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.clock import to_micros
from headrace.errors import WrongType
from headrace.eventsourcing.codec import Data, parsed, text_of
from headrace.eventsourcing.declare import Aggregate, CommandType
from headrace.eventsourcing.hidden import check_tags, stored_tags
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.personal import (
    MARK,
    open_all,
    open_metadata,
    open_reason,
    seal_data,
    seal_metadata,
    seal_reason,
)
from headrace.log import Batch

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain

Row = dict[str, Any]

ACCEPTED, REFUSED = "accepted", "refused"

FOLDED = ("aggregate", "version", "type", "schema", "data")
"""The columns that loading a state reads."""


@dataclass(frozen=True)
class StoredEvent:
    """An event as it is in the log: what has happened, to which aggregate, when and why.

    `event` is its instance in the current version, `schema` the version that is stored.
    """

    aggregate: str
    version: int
    type: str
    schema: int
    at: datetime
    id: str
    command: str
    metadata: dict[str, str]
    tags: tuple[str, ...]
    event: Any
    commit: int

    @property
    def aggregate_id(self) -> str:
        """The id of its aggregate: `a-1` of `account/a-1`."""
        return self.aggregate.partition("/")[2]

    @property
    def index(self) -> int:
        """Its place among the events of its command, from 0."""
        return int(self.id.rpartition(":")[2])


@dataclass(frozen=True)
class StoredCommand:
    """A command as it is in the log, with its outcome and, if it was refused, the reason."""

    id: str
    aggregate: str
    type: str
    at: datetime
    outcome: str
    reason: str | None
    metadata: dict[str, str]
    command: Any
    commit: int


Place = tuple[str, ...]
"""Places of sealed fields, which open there alone: in one event, command or snapshot."""


def event_place(row: Mapping[str, Any]) -> Place:
    """The place of the personal fields of an event."""
    return ("event", row["aggregate"], str(row["version"]), row["type"])


def command_place(row: Mapping[str, Any]) -> Place:
    """The place of the personal fields of a command."""
    return ("command", row["aggregate"], row["id"], row["type"])


def snapshot_place(row: Mapping[str, Any]) -> Place:
    """The place of the personal fields of a state."""
    return ("snapshot", row["aggregate"], str(row["version"]))


def aggregate_tag(key: str) -> str:
    """The tag of all events and commands of an aggregate."""
    return f"aggregate:{key}"


def command_tag(id: str) -> str:
    """The tag of a command."""
    return f"command:{id}"


def event_rows(
    domain: Domain,
    events: Sequence[tuple[str, int, Any]],
    command: str,
    at: datetime,
    metadata: Mapping[str, str],
    keys: KeyStore | None = None,
) -> list[Row]:
    """Rows of events, each with its aggregate's key and its version in it."""
    rows = []
    for index, (key, version, event) in enumerate(events):
        kind = domain.type_of_event(event)
        data, given = kind.codec.data(event), kind.tags_of(event)
        check_tags(kind.personal, data, given)
        row: Row = {
            "aggregate": key,
            "version": version,
            "type": kind.name,
            "schema": kind.version,
            "at": at,
            "id": f"{command}:{index}",
            "command": command,
            "tags": [f"type:{kind.name}", aggregate_tag(key), *stored_tags(given, keys)],
        }
        place = event_place(row)
        row["metadata"] = _metadata(domain, metadata, key, place, keys)
        row["data"] = text_of(seal_data(kind.personal, data, key, place, keys))
        rows.append(row)
    return rows


def command_row(
    domain: Domain,
    kind: CommandType,
    command: Any,
    *,
    id: str,
    key: str,
    at: datetime,
    reason: str | None,
    metadata: Mapping[str, str],
    keys: KeyStore | None = None,
    subjects: AbstractSet[str] = frozenset(),
) -> Row:
    """The row of a command that was decided, on a state that has something of the subjects."""
    row: Row = {
        "id": id,
        "aggregate": key,
        "type": kind.name,
        "schema": kind.version,
        "at": at,
        "outcome": ACCEPTED if reason is None else REFUSED,
        "tags": [command_tag(id), aggregate_tag(key)],
    }
    place, data = command_place(row), kind.codec.data(command)
    stored = seal_data(kind.personal, data, key, place, keys)
    if reason is not None:
        subjects = subjects | kind.personal.subjects(data, key)
        reason, stored = seal_reason(reason, subjects, stored, place, keys)
    row["metadata"] = _metadata(domain, metadata, key, place, keys)
    return {**row, "reason": reason, "data": text_of(stored)}


def snapshot_row(
    aggregate: Aggregate[Any], key: str, version: int, state: Any, keys: KeyStore | None = None
) -> Row:
    """The row of a state after an event."""
    row: Row = {"aggregate": key, "version": version, "state_version": aggregate.state_version}
    data, place = aggregate.codec.data(state), snapshot_place(row)
    return {**row, "data": text_of(seal_data(aggregate.personal, data, key, place, keys))}


def batch_of(rows: Sequence[Row], schema: pa.Schema | None) -> pa.RecordBatch:
    """Rows as Arrow, which takes a map as pairs."""
    pairs = [
        {**row, "metadata": list(row["metadata"].items())} if "metadata" in row else row
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(pairs, schema=schema)


def opened(
    rows: Iterable[Row], place: Callable[[Row], Place], keys: KeyStore | None
) -> Iterator[tuple[Row, Data]]:
    """Rows, each with its data, personal fields opened."""
    found = list(rows)
    data = open_all([(parsed(row["data"]), place(row)) for row in found], keys)
    return zip(found, data, strict=True)


def events_in(
    domain: Domain, batches: Iterable[Batch], keys: KeyStore | None = None
) -> Iterator[StoredEvent]:
    """The events of batches, in the current versions."""
    for batch in batches:
        for row, data in opened(batch.data.to_pylist(), event_place, keys):
            event = domain.event_type(row["type"]).read(data, row["schema"])
            metadata = open_metadata(dict(row["metadata"] or ()), event_place(row), keys)
            yield StoredEvent(
                row["aggregate"], row["version"], row["type"], row["schema"], row["at"], row["id"],
                row["command"], metadata, tuple(row["tags"] or ()), event, batch.commit or 0,
            )  # fmt: skip


def decider_of(row: Row) -> str:
    """The name of the aggregate or the decision that a command is to."""
    return str(row["aggregate"]).partition("/")[0]


def in_order(events: Iterable[StoredEvent]) -> list[StoredEvent]:
    """The events of one command, in its order."""
    return sorted(events, key=lambda event: event.index)


def commands_in(
    domain: Domain,
    batches: Iterable[Batch],
    keys: KeyStore | None = None,
    *,
    of: str | None = None,
) -> Iterator[StoredCommand]:
    """The commands of batches, in the current versions; with `of`, those to one decider."""
    for batch in batches:
        rows = [row for row in batch.data.to_pylist() if of in (None, decider_of(row))]
        for row, data in opened(rows, command_place, keys):
            place = command_place(row)
            kind = domain.command_type(decider_of(row), row["type"])
            yield StoredCommand(
                row["id"], row["aggregate"], row["type"], row["at"], row["outcome"],
                open_reason(row["reason"], parsed(row["data"]), place, keys),
                open_metadata(dict(row["metadata"] or ()), place, keys),
                kind.read(data, row["schema"]), batch.commit or 0,
            )  # fmt: skip


def _metadata(
    domain: Domain,
    metadata: Mapping[str, str],
    key: str,
    place: Place,
    keys: KeyStore | None,
) -> dict[str, str]:
    return seal_metadata(domain.personal_metadata, metadata, key, place, keys)


def checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The metadata of a command, which are texts by name."""
    found = dict(metadata or {})
    texts: list[object] = [*found, *found.values()]
    for text in texts:
        if not isinstance(text, str):
            raise WrongType(
                f"{text!r} in the metadata is not text", hint="Give texts by name: {'who': 'mia'}"
            )
    if MARK in found:
        raise WrongType(f"{MARK!r} cannot be a name in metadata", hint="headrace uses it")
    return found


def micros_of(at: datetime) -> int:
    """A moment with a time zone in microseconds."""
    if getattr(at, "tzinfo", None) is None:
        raise WrongType(
            f"The time {at!r} is no datetime with a time zone", hint="Use datetime.now(tz=UTC)"
        )
    return to_micros(at)
