"""The outbox: a table whose rows are events, routed to topics by the type of their aggregate.

A service inserts an event in the transaction that changes its rows, so it has both or neither. The
columns are those of Debezium's outbox event router. Rows may be deleted as soon as they are
inserted. The table has a topic of changes like any other, too, by which each event is written once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.changes import Written, WrittenPage
from headrace.cdc.contract import Source, Table
from headrace.cdc.encoding import Encoded
from headrace.errors import InvalidSetting, UserError
from headrace.log import Log, Topic
from headrace.log.record import HEADERS_TYPE, RAW_SCHEMA

_TYPE = "{type}"
_MAX_NAME = 249


@dataclass(frozen=True)
class Outbox:
    """An outbox: its table, its columns, and the topics of its events.

    `topic` is a template, in which `{type}` stands for the type of the aggregate. Each of `headers`
    is a column to add as a header of that name; the id and the type of the event always are.
    """

    table: str = "outbox"
    topic: str = "{prefix}.outbox.{type}"
    id: str = "id"
    aggregate_type: str = "aggregatetype"
    aggregate_id: str = "aggregateid"
    type: str = "type"
    payload: str = "payload"
    headers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.topic.count(_TYPE) != 1:
            raise InvalidSetting(
                f"The topic {self.topic!r} of an outbox does not have {_TYPE} once",
                hint="It stands for the type of the aggregate: shop.outbox.{type}",
            )

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Outbox:
        """The outbox that some settings describe, as they are kept."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(settings.keys() - known):
            raise InvalidSetting(
                f"An outbox has no setting {unknown[0]!r}", hint=f"There are: {', '.join(known)}"
            )
        values: dict[str, Any] = dict(settings)
        if "headers" in values:
            names = values["headers"].split(",")
            values["headers"] = tuple(name.strip() for name in names if name.strip())
        return cls(**values)

    def is_table(self, table: Table) -> bool:
        """True if a table is the outbox."""
        return self.table in (table.name, table.full_name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        own = (self.id, self.aggregate_type, self.aggregate_id, self.type, self.payload)
        return (*own, *self.headers)


class Router:
    """Writes the events of an outbox to their topics."""

    def __init__(self, log: Log, prefix: str, outbox: Outbox, partitions: int) -> None:
        self._log = log
        self._outbox = outbox
        self._template = outbox.topic.replace("{prefix}", prefix)
        self._partitions = partitions
        self._topics: dict[str, str] = {}

    def route(self, source: Source, written: Written | WrittenPage) -> Iterator[Encoded]:
        """The events among the rows of a commit, by topic.

        An event is a row that was inserted, or that a snapshot has found. A row that was changed or
        deleted is none. One without a type of its aggregate goes to the topic of no type.
        """
        if not self._outbox.is_table(written.table):
            return
        values = _inserted(source, written)
        if not len(values):
            return
        events = self._events(written.table, values)
        types = events.column("type")
        for kind in pc.unique(types).to_pylist():
            mask = pc.is_null(types) if kind is None else pc.equal(types, kind)
            found = events.filter(mask).select(RAW_SCHEMA.names).combine_chunks()
            batch = pa.RecordBatch.from_arrays(
                [column.combine_chunks() for column in found.columns], schema=RAW_SCHEMA
            )
            yield Encoded(self._topic(kind), batch, np.zeros(len(batch), np.bool_))

    def _events(self, table: Table, values: pa.StructArray) -> pa.Table:
        """The rows as records of a raw topic, each with the type of its aggregate."""
        outbox = self._outbox
        if missing := [name for name in outbox.columns if name not in table.columns.names]:
            there = ", ".join(table.columns.names)
            raise UserError(
                f"The outbox {table.full_name} has no column {missing[0]!r}",
                hint=f"It has: {there}. Name its columns with --outbox-set",
            )

        def text(name: str) -> pa.Array:
            return _text(values.field(table.columns.names.index(name)))

        named = {"id": outbox.id, "type": outbox.type, **{name: name for name in outbox.headers}}
        texts = {header: text(column).to_pylist() for header, column in named.items()}
        headers = [
            [{"key": header, "value": _bytes(column[row])} for header, column in texts.items()]
            for row in range(len(values))
        ]
        return pa.table(
            {
                "key": text(outbox.aggregate_id).cast(pa.binary()),
                "value": _payload(values.field(table.columns.names.index(outbox.payload))),
                "headers": pa.array(headers, HEADERS_TYPE),
                "type": text(outbox.aggregate_type),
            }
        )

    def _topic(self, kind: str | None) -> str:
        """The topic of a type of aggregates, created if it is missing."""
        word = "" if kind is None else re.sub(r"[^A-Za-z0-9._-]", "_", kind)
        name = self._template.replace(_TYPE, word or "_")[:_MAX_NAME]
        if name not in self._topics:
            self._topics[name] = self._log.ensure_topic(Topic(name, self._partitions)).name
        return self._topics[name]


def _inserted(source: Source, written: Written | WrittenPage) -> pa.StructArray:
    """The rows of a commit that were inserted, or that a snapshot has found."""
    if isinstance(written, WrittenPage):
        return written.after
    rows = [
        after
        for op, before, after in zip(written.ops, written.before, written.after, strict=True)
        if op in ("c", "r") and before is None and after is not None
    ]
    return source.columns(written.table.columns, rows)


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column.cast(pa.string())
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def _payload(column: pa.Array) -> pa.Array:
    """A payload as bytes: those of the column, or of its text."""
    return column if pa.types.is_binary(column.type) else _text(column).cast(pa.binary())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
