"""Orders in the Confluent wire format, as a shop writes them with Confluent's own serializers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.registry import Registry
from tests.waiting import left

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

SUBJECTS = "subject.name.strategy"
BY_TOPIC = topic_subject_name_strategy
BY_RECORD = record_subject_name_strategy
SubjectNames = Any

COUNTRY = {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}


def order(*more: dict[str, Any], **fields: Any) -> str:
    """The schema of an order, in which fields may differ or be more."""
    known = {
        "user": {
            "type": "record",
            "name": "User",
            "fields": [{"name": "id", "type": "int"}, {"name": "country", "type": COUNTRY}],
        },
        "amount": ["null", AMOUNT],
        "at": MILLIS,
    }
    made = [{"name": name, "type": kind} for name, kind in {**known, **fields}.items()]
    return json.dumps(
        {"type": "record", "name": "Order", "namespace": "shop", "fields": [*more, *made]}
    )


class Shop:
    """A program that writes orders with Confluent's serializers."""

    def __init__(self, servers: str, registry: Registry, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers})
        self._client = SchemaRegistryClient({"url": registry.url})
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result(left())

    def avro(self, schema: str, *rows: dict[str, Any], of: SubjectNames = BY_TOPIC) -> None:
        self._write(AvroSerializer(self._client, schema, conf={SUBJECTS: of}), rows)

    def json(self, schema: str, *rows: dict[str, Any]) -> None:
        self._write(JSONSerializer(schema, self._client), rows)

    def raw(self, *values: bytes | None) -> None:
        for value in values:
            self._producer.produce(self._topic, value, partition=0)
        self._producer.flush()

    def _write(self, serializer: Any, rows: tuple[dict[str, Any], ...]) -> None:
        context = SerializationContext(self._topic, MessageField.VALUE)
        self.raw(*(serializer(row, context) for row in rows))


def sold(second: int, country: str = "DE", amount: str = "1.50", **more: Any) -> dict[str, Any]:
    return {
        "user": {"id": second, "country": country},
        "amount": Decimal(amount),
        "at": BEGIN + second * SECOND,
        **more,
    }
