"""Convert Arrow data to a topic's schema, or refuse it with the reason."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidRecord, NullKey, RecordTooLarge, UnknownColumn, WrongType
from headrace.log.record import RAW_SCHEMA
from headrace.log.state import Topic
from headrace.schema.ddl import format_type
from headrace.schema.soundness import first_unsound


def conform(topic: Topic, data: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Rows converted to the topic's columns and types.

    Columns may come in any order, missing nullable ones become null, and types are cast where no
    value changes. Anything else is refused, and so is invalid Arrow data.
    """
    if (unsound := first_unsound(data)) is not None:
        column, why = unsound
        raise InvalidRecord(
            f"The column {column!r} of the data for topic {topic.name!r} is not valid Arrow: {why}",
            hint="The program that made it has a bug; data.validate(full=True) reports the same",
            topic=topic.name,
            column=column,
        )
    schema = RAW_SCHEMA if topic.schema is None else topic.schema
    if data.schema.equals(schema, check_metadata=False):
        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    else:
        batches = _cast(topic, schema, data).to_batches()
    for batch in batches:
        _check_nulls(topic, schema, batch)
        _check_sizes(topic, batch)
    return [batch for batch in batches if batch.num_rows]


def _cast(topic: Topic, schema: pa.Schema, data: pa.RecordBatch | pa.Table) -> pa.Table:
    for name in data.schema.names:
        if name not in schema.names:
            raise unknown_column(topic, name)
        if len(data.schema.get_all_field_indices(name)) > 1:
            raise InvalidRecord(
                f"The data for topic {topic.name!r} has the column {name!r} more than once",
                topic=topic.name,
                column=name,
            )
    columns: list[Any] = []
    for field in schema:
        if field.name not in data.schema.names:
            if not field.nullable:
                raise UnknownColumn(
                    f"Topic {topic.name!r} needs the column {field.name!r}, "
                    "but the data does not have it",
                    hint=f"The data has: {', '.join(data.schema.names)}",
                    topic=topic.name,
                    column=field.name,
                )
            columns.append(pa.nulls(data.num_rows, field.type))
            continue
        column = data.column(field.name)
        try:
            columns.append(_exact(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise WrongType(
                f"Column {field.name!r} of topic {topic.name!r} is {format_type(field.type)}, "
                f"but the data's {column.type} does not fit it: {error}",
                hint="Convert the column before appending it",
                topic=topic.name,
                column=field.name,
            ) from error
    return pa.table(columns, schema=schema)


def _exact(column: Any, kind: pa.DataType) -> Any:
    """Cast a column, if no value changes.

    Arrow refuses most lossy casts, but casts 5 to true, a timestamp to a date, and a large number
    to infinity, and drops fields of a struct.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if (extra := _extra_field(column.type, kind)) is not None:
        raise pa.ArrowInvalid(f"it has no field {extra!r}")
    cast = column.cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(column.type):
        same = pc.all(pc.equal(pc.is_inf(cast), pc.is_inf(column))).as_py() is not False
    elif pa.types.is_nested(kind) or column.type.equals(kind):
        same = True
    else:
        same = cast.cast(column.type).equals(column)
    if not same:
        raise pa.ArrowInvalid("a value would change")
    return cast


def _extra_field(given: pa.DataType, kind: pa.DataType) -> str | None:
    """The first field inside of a type that the other type does not have."""
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        for field in given:
            if kind.get_field_index(field.name) < 0:
                return str(field.name)
            inner = _extra_field(field.type, kind.field(field.name).type)
            if inner is not None:
                return f"{field.name}.{inner}"
    elif pa.types.is_map(given) and pa.types.is_map(kind):
        return _extra_field(given.item_type, kind.item_type)
    elif pa.types.is_list(given) and pa.types.is_list(kind):
        return _extra_field(given.value_type, kind.value_type)
    return None


def unknown_column(topic: Topic, name: str) -> UnknownColumn:
    """The error for a column that the topic does not have; the hint names a similar one."""
    names = (RAW_SCHEMA if topic.schema is None else topic.schema).names
    near = difflib.get_close_matches(name, names, 1)
    return UnknownColumn(
        f"Topic {topic.name!r} has no column {name!r}",
        hint=f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(names)}",
        topic=topic.name,
        column=name,
    )


def null_key(topic: Topic) -> NullKey:
    """The error for a record without a key in a topic that needs one."""
    why = "is compacted by key" if topic.key is None else f"has the key {topic.key!r}"
    return NullKey(
        f"A record for topic {topic.name!r} has no key, and the topic {why}",
        hint="Give every record a key",
        topic=topic.name,
    )


def too_large(topic: Topic, size: int) -> RecordTooLarge:
    """The error for a record over its topic's limit."""
    return RecordTooLarge(
        f"A record for topic {topic.name!r} has {size:,} bytes, "
        f"but the topic's max_record_bytes is {topic.settings.max_record_bytes:,}",
        hint="Store large values elsewhere and send their location, or raise the topic's "
        f"limit: headrace topics alter {topic.name} --set max_record_bytes=16MiB",
        topic=topic.name,
        size=size,
    )


def _check_nulls(topic: Topic, schema: pa.Schema, batch: pa.RecordBatch) -> None:
    key = "key" if topic.schema is None and topic.settings.compacts else topic.key
    if key is not None and batch.column(key).null_count:
        raise null_key(topic)
    for field in schema:
        if not field.nullable and batch.column(field.name).null_count:
            raise WrongType(
                f"Column {field.name!r} of topic {topic.name!r} is NOT NULL, "
                "but the data has a null in it",
                topic=topic.name,
                column=field.name,
            )


def _check_sizes(topic: Topic, batch: pa.RecordBatch) -> None:
    limit = topic.settings.max_record_bytes
    if batch.nbytes <= limit or sum(map(_longest, batch.columns)) <= limit:
        return
    largest = int(row_sizes(batch).max())
    if largest > limit:
        raise too_large(topic, largest)


def _longest(column: pa.Array) -> int:
    """An upper bound on the size of any value in bytes, found without reading the values."""
    if not len(column):
        return 0
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        ends = np.frombuffer(column.buffers()[1], np.int32)
        ends = ends[column.offset : column.offset + len(column) + 1]
        return int(np.diff(ends).max())
    if pa.types.is_struct(column.type):
        return 1 + sum(map(_longest, column.flatten()))
    return column.nbytes if pa.types.is_nested(column.type) else 16


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    large = types.is_large_binary(kind) or types.is_large_string(kind)
    return bool(types.is_binary(kind) or types.is_string(kind) or large)


def row_sizes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The approximate size of each row in bytes, for size limits."""
    return _sizes(batch.columns, batch.num_rows)


def _sizes(columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    total = np.zeros(rows, np.int64)
    for column in columns:
        if _is_bytes(column.type):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        elif not pa.types.is_nested(column.type):
            total += max(1, column.type.bit_width // 8)
        elif pa.types.is_struct(column.type):
            total += _sizes(column.flatten(), rows)
        elif column.null_count < len(column):
            total += np.fromiter(
                (column.slice(i, 1).nbytes for i in range(len(column))), np.int64, len(column)
            )
    return total
