"""Conversion of rows to bytes and back, in the format of their topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import InvalidSchema, InvalidSetting
from headrace.log.declared import TopicRow, topic_schema
from headrace.log.kafka.address import KafkaAddress
from headrace.log.kafka.registry import Registry, registry_of
from headrace.log.kafka.rows_avro import AvroRows
from headrace.log.kafka.rows_bytes import BytesRows, HeadersOf, no_headers
from headrace.log.kafka.rows_cloudevents import CloudEventRows
from headrace.log.kafka.rows_confluent import ConfluentAvroRows, ConfluentJsonRows
from headrace.log.kafka.rows_debezium import DebeziumRows
from headrace.log.kafka.rows_json import JsonRows
from headrace.log.state import Topic


@dataclass(frozen=True)
class KafkaTopicRow(TopicRow):
    """A topic on Kafka, and the address of the cluster, which names the schema registry."""

    address: KafkaAddress = field(compare=False, repr=False)


class Rows(Protocol):
    """The codec of one schema's rows."""

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The bytes of each row."""

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        """The columns of some rows. Raises `Garbage` for the first invalid one.

        Adds to `odd` the columns that rows have and the schema lacks, if the format has names.
        `headers` gives those of the record at an index.
        """


def rows_of(topic: TopicRow) -> Rows:
    """The codec of a typed topic's rows."""
    assert topic.columns is not None
    registry = None
    if topic.topic.settings.format == "avro-confluent":
        assert isinstance(topic, KafkaTopicRow)
        registry = registry_of(topic.address, topic.name)
    return _rows(topic.columns, topic.topic.settings.format, registry)


@lru_cache(maxsize=1024)
def _rows(columns: str, format: str, registry: Registry | None = None) -> Rows:
    if format == "avro-confluent":
        return ConfluentAvroRows(topic_schema(columns), registry)
    return _FORMATS[format](topic_schema(columns))


_FORMATS: dict[str, Callable[[pa.Schema], Rows]] = {
    "json": JsonRows,
    "avro": AvroRows,
    "bytes": BytesRows,
    "json-confluent": ConfluentJsonRows,
    "cloudevents": CloudEventRows,
    "debezium-json": DebeziumRows,
}


def check_columns(topic: Topic, columns: str | None) -> None:
    """Raise if the topic's format cannot hold rows with these columns."""
    if columns is None:
        return
    name, format = topic.name, topic.settings.format
    _rows(columns, format)  # rejects names that Avro forbids, and columns that are not bytes
    if format == "bytes" and topic.event_time and topic.settings.missing_time != "arrival":
        raise InvalidSetting(
            f"The rows of topic {name!r} are raw bytes, which hold no event time",
            hint="Set missing_time=arrival to use the record's own time",
        )
    for column in topic_schema(columns):
        if _has_odd_map(column.type):
            raise InvalidSchema(
                f"The column {column.name!r} of topic {name!r} has a map whose keys are not text, "
                f"which {format} on Kafka cannot hold",
                hint="Use map<string, ...>, or an array of structs",
                column=column.name,
            )


def _has_odd_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        return True
    children: list[Any] = [kind.field(i).type for i in range(kind.num_fields)]
    return any(map(_has_odd_map, children))
