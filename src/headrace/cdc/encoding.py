"""Envelopes as Arrow: all rows of a commit in the topic of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.cdc.changes import Written, WrittenPage
from headrace.cdc.contract import Row, Source, Table
from headrace.cdc.envelope import SOURCE
from headrace.cdc.topics import row_of
from headrace.log import Topic
from headrace.log.roles import Flags


class Stamp(NamedTuple):
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
    source: Source,
    prefix: str,
    topic: Topic,
    written: Written | WrittenPage,
    stamps: Sequence[Stamp],
    now: int,
) -> Encoded:
    """The envelopes of a commit in one topic. `now` is in microseconds."""
    assert topic.schema is not None
    row, table, count = row_of(topic), written.table, len(written.keys)
    if isinstance(written, WrittenPage):
        keys, ops = written.keys, pa.repeat(pa.scalar("r", pa.string()), count)
        before, after = pa.nulls(count, row), _conformed(table, row, written.after)
        places, orders = np.zeros(count, np.int32), np.arange(1, count + 1)
        dead = np.zeros(count, np.bool_)
    else:
        keys, ops = pa.array(written.keys, pa.string()), pa.array(written.ops, pa.string())
        before = _conformed(table, row, source.columns(table.columns, written.before))
        after = _conformed(table, row, source.columns(table.columns, written.after))
        places, orders = np.array(written.transactions, np.int32), np.array(written.orders)
        dead = np.array(written.dead, np.bool_)
    columns = [
        keys,
        before,
        after,
        _source(source, prefix, table, stamps, places, orders),
        ops,
        pa.repeat(pa.scalar(now // 1000, pa.int64()), count),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=topic.schema)
    return Encoded(topic.name, batch, dead)


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


def _conformed(table: Table, kind: pa.StructType, made: pa.StructArray) -> pa.StructArray:
    """Rows in the type of the topic, which has all columns that the table ever had."""
    if made.type.equals(kind):
        return made
    columns = []
    for column in kind:
        place = table.columns.get_field_index(column.name)
        if place < 0:
            columns.append(pa.nulls(len(made), column.type))
        else:
            columns.append(made.field(place).cast(column.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=made.is_null())


def _source(
    source: Source,
    prefix: str,
    table: Table,
    stamps: Sequence[Stamp],
    places: npt.NDArray[np.int32],
    orders: npt.NDArray[np.int64],
) -> pa.StructArray:
    """The column that says where each change comes from."""
    count = len(places)
    taken = pa.array(places)

    def same(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), count)

    def of_each(values: list[Any], kind: pa.DataType) -> pa.Array:
        if len(values) == 1:
            return pa.repeat(pa.scalar(values[0], kind), count)
        return pa.array(values, kind).take(taken)

    times = [stamp.at for stamp in stamps]
    columns = {
        "connector": same(source.kind),
        "name": same(prefix),
        "db": same(source.database),
        "schema": same(table.schema),
        "table": same(table.name),
        "position": of_each([stamp.position for stamp in stamps], pa.string()),
        "tx": of_each([stamp.tx for stamp in stamps], pa.string()),
        "order": pa.array(orders, pa.int64()),
        "part": of_each([stamp.part for stamp in stamps], pa.int32()),
        "last_part": of_each([stamp.last_part for stamp in stamps], pa.bool_()),
        "snapshot": of_each([stamp.snapshot for stamp in stamps], pa.string()),
        "ts_ms": of_each([at // 1000 for at in times], pa.int64()),
        "ts_us": of_each(times, pa.int64()),
    }
    return pa.StructArray.from_arrays(
        [columns[column.name] for column in SOURCE], fields=list(SOURCE)
    )
