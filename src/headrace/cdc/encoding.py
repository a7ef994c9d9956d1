"""Envelopes as Arrow: all rows of a commit in the topic of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.cdc.changes import Written
from headrace.cdc.contract import Row, Source, Table
from headrace.cdc.envelope import SOURCE
from headrace.cdc.topics import row_of
from headrace.log import Topic
from headrace.log.roles import Flags


@dataclass(frozen=True)
class Stamp:
    """The origin and time of the changes of a transaction, as the envelope has them."""

    position: str | None
    tx: str | None
    at: int
    part: int | None = None
    last_part: bool | None = None
    snapshot: str | None = None


@dataclass(frozen=True)
class Encoded:
    """Rows for a topic, and which of them are tombstones."""

    topic: str
    rows: pa.RecordBatch
    tombstones: Flags


def encode(
    source: Source, prefix: str, topic: Topic, written: Written, stamps: Sequence[Stamp], now: int
) -> Encoded:
    """The envelopes of a commit in one topic. `now` is in microseconds."""
    assert topic.schema is not None
    row, count = row_of(topic), len(written.keys)
    columns = [
        pa.array(written.keys, pa.string()),
        _rows(source, written.table, row, written.before),
        _rows(source, written.table, row, written.after),
        _source(source, prefix, written, stamps),
        pa.array(written.ops, pa.string()),
        pa.repeat(pa.scalar(now // 1000, pa.int64()), count),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=topic.schema)
    return Encoded(topic.name, batch, np.array(written.dead, np.bool_))


def table_rows(source: Source, table: Table, values: pa.StructArray) -> list[Row | None]:
    """The reverse: rows of a topic as the source's own, in the table's columns."""
    kind = values.type
    columns = [
        values.field(kind.get_field_index(column.name)).cast(column.type)
        for column in table.columns
    ]
    fields = [column.with_nullable(True) for column in table.columns]
    made = pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())
    return source.rows(table.columns, made)


def _rows(
    source: Source, table: Table, kind: pa.StructType, rows: Sequence[Row | None]
) -> pa.StructArray:
    """Rows in the type of the topic, which has all columns that the table ever had."""
    made = source.columns(table.columns, rows)
    if made.type.equals(kind):
        return made
    columns = []
    for column in kind:
        place = table.columns.get_field_index(column.name)
        if place < 0:
            columns.append(pa.nulls(len(rows), column.type))
        else:
            columns.append(made.field(place).cast(column.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=made.is_null())


def _source(
    source: Source, prefix: str, written: Written, stamps: Sequence[Stamp]
) -> pa.StructArray:
    """The column that says where each change comes from."""
    count = len(written.keys)
    places = pa.array(written.transactions, pa.int32())

    def same(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), count)

    def of_each(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(places)

    times = [stamp.at for stamp in stamps]
    columns = {
        "connector": same(source.kind),
        "name": same(prefix),
        "db": same(source.database),
        "schema": same(written.table.schema),
        "table": same(written.table.name),
        "position": of_each([stamp.position for stamp in stamps], pa.string()),
        "tx": of_each([stamp.tx for stamp in stamps], pa.string()),
        "order": pa.array(written.orders, pa.int64()),
        "part": of_each([stamp.part for stamp in stamps], pa.int32()),
        "last_part": of_each([stamp.last_part for stamp in stamps], pa.bool_()),
        "snapshot": of_each([stamp.snapshot for stamp in stamps], pa.string()),
        "ts_ms": of_each([at // 1000 for at in times], pa.int64()),
        "ts_us": of_each(times, pa.int64()),
    }
    return pa.StructArray.from_arrays(
        [columns[column.name] for column in SOURCE], fields=list(SOURCE)
    )
