"""Rows as bytes and back, in the format of their topic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import InvalidSchema
from headrace.log.declared import TopicRow, topic_schema
from headrace.log.kafka.rows_avro import AvroRows
from headrace.log.kafka.rows_json import JsonRows


class Rows(Protocol):
    """How the rows of one schema are written."""

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The bytes of each row."""

    def decode(self, values: Sequence[bytes], odd: set[str]) -> list[pa.Array]:
        """The columns of some rows. Raises `Garbage` for the first that is none.

        Columns that rows have and the schema has not go to `odd`, as far as the format tells.
        """


def rows_of(topic: TopicRow) -> Rows:
    """How a typed topic's rows are written."""
    assert topic.columns is not None
    return _rows(topic.columns, topic.topic.settings.format)


@lru_cache(maxsize=1024)
def _rows(columns: str, format: str) -> Rows:
    schema = topic_schema(columns)
    return AvroRows(schema) if format == "avro" else JsonRows(schema)


def check_columns(name: str, columns: str | None, format: str) -> None:
    """Return if rows with such columns can be written."""
    if columns is None:
        return
    _rows(columns, format)  # refuses names that Avro does not have
    for field in topic_schema(columns):
        if _has_odd_map(field.type):
            raise InvalidSchema(
                f"The column {field.name!r} of topic {name!r} has a map whose keys are not text, "
                f"which {format} on Kafka cannot hold",
                hint="Use map<string, ...>, or an array of structs",
                column=field.name,
            )


def _has_odd_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        return True
    children: list[Any] = [kind.field(i).type for i in range(kind.num_fields)]
    return any(map(_has_odd_map, children))
