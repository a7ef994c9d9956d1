"""The topics of captured tables: their names, and columns that follow those of the tables."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.cdc.envelope import EVENT_TIME, KEY, envelope_schema
from headrace.errors import SourceError, UserError
from headrace.log import Log, Topic, TopicSettings
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.schema.ddl import format_type

ROW = "after"
"""The column of the envelope whose fields are all columns that the table ever had."""


def topic_of(prefix: str, table: Table) -> str:
    """The topic of a table. Other characters than a topic's name may have become underscores."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{prefix}.{table.full_name}")


def check_names(prefix: str, tables: list[Table]) -> None:
    """Check that no two tables have the same topic."""
    named: dict[str, Table] = {}
    for table in tables:
        other = named.setdefault(topic_of(prefix, table), table)
        if other is not table:
            raise UserError(
                f"The tables {other.full_name!r} and {table.full_name!r} would have the same "
                f"topic, {topic_of(prefix, table)!r}",
                hint="Capture one of them under another prefix",
            )


def ensure_topic(log: Log, prefix: str, table: Table, partitions: int) -> Topic:
    """The topic of a table, created if it is missing, with all columns of the table.

    A column that the table no longer has stays in the topic. One with a type that the topic's
    column cannot hold stops the capture.
    """
    declared = Topic(
        topic_of(prefix, table),
        partitions,
        envelope_schema(table.columns),
        KEY,
        EVENT_TIME,
        # A row and the one before it are in one record.
        TopicSettings(cleanup="compact", max_record_bytes=MAX_RECORD_BYTES),
    )
    topic = log.ensure_topic(declared)
    there = row_of(topic)
    wanted = _joined(topic.name, there, table)
    if wanted.equals(there):
        return topic
    assert topic.schema is not None
    fields = [
        pa.field(f.name, wanted) if f.name in ("before", "after") else f for f in topic.schema
    ]
    return log.alter_topic(topic.name, schema=pa.schema(fields))


def row_of(topic: Topic) -> pa.StructType:
    """The type of a row in a topic of changes."""
    if topic.schema is None or ROW not in topic.schema.names:
        raise UserError(
            f"The topic {topic.name!r} exists, and is not one of captured changes",
            hint="Choose another prefix, or delete the topic",
            topic=topic.name,
        )
    return topic.schema.field(ROW).type


def _joined(topic: str, there: pa.StructType, table: Table) -> pa.StructType:
    """The fields of a row in a topic, and after them the columns of the table that are new."""
    fields = list(there)
    for column in table.columns:
        place = there.get_field_index(column.name)
        if place < 0:
            fields.append(column.with_nullable(True).remove_metadata())
        elif not _holds(there.field(place).type, column.type):
            raise SourceError(
                f"The column {column.name!r} of table {table.full_name} is now "
                f"{format_type(column.type)}, and that of topic {topic!r} is "
                f"{format_type(there.field(place).type)}, which cannot hold it",
                hint="Capture the table under another prefix, or delete the topic and run the "
                "capture again: it writes the whole table anew",
                table=table.full_name,
                column=column.name,
            )
    return pa.struct(fields)


def _holds(wide: pa.DataType, kind: pa.DataType) -> bool:
    """True if each value of a type has an equal one of the other."""
    if wide.equals(kind):
        return True
    types = pa.types
    if types.is_signed_integer(wide) and types.is_signed_integer(kind):
        return bool(wide.bit_width >= kind.bit_width)
    if types.is_decimal(wide) and types.is_decimal(kind):
        whole = wide.precision - wide.scale >= kind.precision - kind.scale
        return bool(whole and wide.scale >= kind.scale)
    return bool(types.is_float64(wide) and (types.is_float32(kind) or _small(kind)))


def _small(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= 32)
