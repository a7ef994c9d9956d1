"""The state of a capture, in a topic of its own: the position in the source, and its tables.

Each commit of the capture has a record of the position, so position and changes cannot disagree.
The topic is compacted, so it has the newest record of each kind, and every notice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headrace.cdc.contract import Row, Table
from headrace.log import Log, Topic, TopicSettings, Transaction
from headrace.schema.ddl import format_schema

SnapshotKind = Literal["initial", "incremental", "heal"]
NoticeKind = Literal["gap", "schema"]

_POSITION = "position"
_TABLE = "table "
_NOTICE = "notice "


@dataclass(frozen=True)
class Reached:
    """The position of a capture in its source, as of a commit.

    `position` is None until the source has given one. `at` is the event time of the last change,
    in microseconds. Of a transaction that is written in parts, `tx` is the id, `done` the number of
    its changes that are written, and `parts` that of its parts. `mark` names the commit.
    """

    position: str | None = None
    at: int | None = None
    tx: str | None = None
    done: int = 0
    parts: int = 0
    transactions: int = 0
    changes: int = 0
    mark: str = ""
    time: int = 0
    """The time of the commit by the capture's clock, in microseconds."""


@dataclass(frozen=True)
class Snapshot:
    """The progress of the snapshot of a table.

    `generation` grows with each snapshot of the table. `after` is the last key that was read, as
    JSON. `read` counts the rows of its chunks, `written` those that were not in the topic yet, and
    `deleted` those that it did not find: they are looked for while it is `sweeping`, after the last
    chunk. Copies of rows that no snapshot from `doubt` on has seen may be out of date, as after a
    gap.
    """

    generation: int
    kind: SnapshotKind
    after: str | None = None
    read: int = 0
    written: int = 0
    deleted: int = 0
    sweeping: bool = False
    doubt: int = 0
    complete: bool = False

    def to_text(self) -> str:
        """The snapshot as text, which `from_text` makes a snapshot of."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Snapshot:
        """The snapshot that a text is of."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class TableState:
    """A captured table, as the topic shows it. `topic_id` tells a topic that was made anew."""

    name: str
    topic: str
    topic_id: int
    columns: str
    key: tuple[str, ...]
    snapshot: Snapshot | None = None

    def is_like(self, table: Table) -> bool:
        """True if the table has these columns and this key."""
        return (self.columns, self.key) == (format_schema(table.columns), table.key)


@dataclass(frozen=True)
class Notice:
    """An event in the life of a capture that people want to know: a gap, a change of a schema."""

    kind: NoticeKind
    text: str
    table: str | None
    number: int
    position: str | None = None
    time: int = 0
    """The time by the capture's clock, in microseconds."""


@dataclass(frozen=True)
class CaptureState:
    """All that a capture knows between two runs, and what `status` shows."""

    reached: Reached = field(default_factory=Reached)
    tables: dict[str, TableState] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


def state_topic(prefix: str) -> str:
    """The topic of the states of a capture."""
    return f"_headrace.cdc.{prefix}"


def ensure_state_topic(log: Log, prefix: str) -> str:
    """The topic of the states, created if it is missing."""
    settings = TopicSettings(cleanup="compact")
    return log.ensure_topic(Topic(state_topic(prefix), 1, settings=settings)).name


def read_state(log: Log, prefix: str) -> CaptureState:
    """The state of a capture. Raises `UnknownTopic` if there never was one."""
    reached, tables, notices = Reached(), {}, []
    for key, value in _records(log, state_topic(prefix)):
        if key == _POSITION:
            reached = Reached(**value)
        elif key.startswith(_TABLE):
            tables[key.removeprefix(_TABLE)] = _table(value)
        elif key.startswith(_NOTICE):
            notices.append(Notice(**value))
    return CaptureState(reached, tables, tuple(notices))


def write_state(
    transaction: Transaction,
    prefix: str,
    reached: Reached,
    tables: Iterable[TableState],
    notices: Iterable[Notice],
) -> None:
    """Add to a transaction the position, the tables that have changed, and new notices."""
    records: list[tuple[str, Any]] = [
        *((_NOTICE + str(notice.number), notice) for notice in notices),
        *((_TABLE + table.name, table) for table in tables),
        (_POSITION, reached),
    ]
    for key, value in records:
        transaction.send(state_topic(prefix), json.dumps(asdict(value)), key)


def key_text(key: Row | None) -> str | None:
    """A key of the source as text."""
    if key is None:
        return None
    return json.dumps([_Bytes.of(value) for value in key], default=_Bytes.plain)


def read_key(text: str | None) -> Row | None:
    """The key that `key_text` made text of."""
    return None if text is None else tuple(map(_Bytes.read, json.loads(text)))


class _Bytes:
    """Bytes in JSON: an object with their base64."""

    @staticmethod
    def of(value: Any) -> Any:
        return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value

    @staticmethod
    def plain(value: Any) -> Any:
        raise TypeError(f"{type(value).__name__} cannot be a part of a key")

    @staticmethod
    def read(value: Any) -> Any:
        return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


def _records(log: Log, topic: str) -> Iterable[tuple[str, Any]]:
    for batch in log.read(topic):
        for record in batch.records():
            if record.value is not None:
                yield record.key.decode(), json.loads(record.value)


def _table(value: dict[str, Any]) -> TableState:
    snapshot = value["snapshot"]
    value["snapshot"] = None if snapshot is None else Snapshot(**snapshot)
    value["key"] = tuple(value["key"])
    return TableState(**value)
