"""Sort the records of a broker into rows of the topic (tombstones included) and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log import Topic
from headrace.log.dead_letter import NO_KEY, bytes_text, dead_letters, is_unreadable
from headrace.log.partitioner import key_of_bytes
from headrace.log.roles import Flags
from headrace.log.split import MAX_COMMIT_BYTES, ranges_of
from headrace.plan.kafka.decode import REASON, ROW

NO_VALUE = "no value"

_PART_BYTES = 8 << 20
"""Approximate size of a landing's commit."""


@dataclass(frozen=True)
class Parted:
    """The sorted records of a batch. `tombstones` flags the rows that are tombstones."""

    rows: pa.Table
    tombstones: Flags
    dead: pa.Table

    def parts(self) -> Iterator[tuple[pa.Table, Flags]]:
        """The rows in pieces that each fit one commit, split in the same places every time.

        Pieces have the same number of rows, or fewer if some rows are much larger than others.
        """
        size = max(1, self.rows.nbytes)
        step = max(1, self.rows.num_rows * _PART_BYTES // size)
        for start in range(0, self.rows.num_rows, step):
            rows = self.rows.slice(start, step)
            for first, end in ranges_of(rows, MAX_COMMIT_BYTES):
                flags = self.tombstones[start + first : start + end]
                yield rows.slice(first, end - first), flags


def part(records: pa.Table, topic: Topic, step: str) -> Parted:
    """Sort the records of a topic, which have their bytes, position, decoded `row` and reason."""
    assert topic.schema is not None
    records = records.combine_chunks()
    deleted = _flags(pc.is_null(records.column("value")))
    decoded = records.column(ROW)
    unread = _flags(pc.is_null(decoded)) & ~deleted
    reasons = np.where(unread, records.column(REASON).to_numpy(), "").astype(object)
    columns = []
    for field in topic.schema:
        column = pc.struct_field(decoded, field.name).cast(field.type)
        if field.name == topic.key:
            keys = _keys(records.column("key").filter(pa.array(deleted)), field.type)
            column = pc.replace_with_mask(column.combine_chunks(), pa.array(deleted), keys)
        elif not field.nullable:
            empty = _flags(pc.is_null(column)) & ~deleted & (reasons == "")
            reasons[empty] = f"no {field.name}"
        columns.append(column)
    rows = pa.table(columns, names=topic.schema.names)
    if topic.key is not None:
        reasons[_flags(pc.is_null(rows.column(topic.key))) & (reasons == "")] = NO_KEY
    else:
        reasons[deleted] = NO_VALUE
    good = reasons == ""
    return Parted(
        rows.filter(pa.array(good)),
        deleted[good],
        _letters(records.filter(pa.array(~good)), list(reasons[~good]), topic, step),
    )


def _keys(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The keys of tombstones; null where the bytes are not a key of the topic."""
    found = []
    for data in column.to_pylist():
        try:
            found.append(None if data is None else key_of_bytes(data, kind))
        except (ValueError, pa.ArrowException):
            found.append(None)
    return pa.array(found, kind)


def _letters(records: pa.Table, reasons: list[str], topic: Topic, step: str) -> pa.Table:
    values = records.column("value").to_pylist()
    return dead_letters(
        records.num_rows,
        step=step,
        topic=topic.name,
        partition=records.column("partition"),
        offset=records.column("offset"),
        commit_number=None,
        appended=records.column("timestamp"),
        reason=reasons,
        row=[
            bytes_text(value, readable=not is_unreadable(reason))
            for value, reason in zip(values, reasons, strict=True)
        ],
    )


def _flags(column: Any) -> Flags:
    found: Flags = column.to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
