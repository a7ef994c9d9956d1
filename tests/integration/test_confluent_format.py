"""Topics in the Confluent wire format, written by Confluent's own serializers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import (
    InvalidSetting,
    PipelineFailed,
    RegistryUnavailable,
    UnreadableRecord,
    Unsupported,
)
from headrace.log import Topic, TopicSettings
from headrace.log.kafka import registry as client
from headrace.log.kafka.confluent import header_of
from headrace.log.kafka.rows_confluent import ConfluentAvroRows
from headrace.pipeline.stream import Source
from headrace.plan.arrow_frames import frame_of
from headrace.plan.kafka.decode import REASON, Decoder
from headrace.schema.ddl import parse_schema
from headrace.servers.kafka.state import ClusterState
from tests.kafka_runs import Runs, letters, runs
from tests.orders import BEGIN, BY_RECORD, COUNTRY, MILLIS, SECOND, Shop, order, sold
from tests.registry import Registry, serving
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

SCHEMA = "user struct<id: bigint, country: string>, amount decimal(10, 2), at timestamp"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with serving(Registry()) as made:
        monkeypatch.setenv("HEADRACE_KAFKA_SCHEMA_REGISTRY_URL", made.url)
        yield made


@pytest.fixture
def kafka(
    broker: ClusterState, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def declared(kafka: Runs, format: str = "avro-confluent") -> tuple[hr.App, Source]:
    app = hr.App(kafka.name("app"))
    settings = {"format": format}
    topic = kafka.name("orders")
    return app, app.topic(topic, schema=SCHEMA, event_time="at", settings=settings)


def counted(app: hr.App, source: Source) -> None:
    per_minute = hr.aggregate(
        source,
        by="user.country",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(10 * SECOND, 20 * SECOND),
        orders=hr.count(),
        total=hr.sum("amount"),
    )
    app.view("orders", per_minute)


def orders(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, str]]:
    return [(r["country"], r["window_start"][14:], r["orders"], str(r["total"])) for r in rows]


def test_each_record_is_read_with_the_schema_it_was_written_in(
    kafka: Runs, registry: Registry
) -> None:
    app, source = declared(kafka)
    shop = Shop(kafka.servers, registry, source.topic.name)
    shop.avro(order(), sold(1), sold(2, "FR"))
    note = {"name": "note", "type": "string", "default": ""}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    shop.avro(order(note, at=["null", micros]), sold(3, note="x"))
    without = json.loads(order())
    without["fields"].pop(1)
    shop.avro(json.dumps(without), {k: v for k, v in sold(61).items() if k != "amount"})
    counted(app, source)
    results = kafka.run(app)
    assert orders(results.view("orders")) == [
        ("DE", "00:00", 2, "3.00"),
        ("DE", "01:00", 1, "None"),
        ("FR", "00:00", 1, "1.50"),
    ]
    assert results.law("orders").holds
    assert letters(results, app.name) == []


@pytest.mark.slow
def test_a_schema_that_first_appears_in_the_middle_of_a_stream_is_looked_up(
    kafka: Runs, registry: Registry
) -> None:
    app, source = declared(kafka)
    shop = Shop(kafka.servers, registry, source.topic.name)
    shop.avro(order(), sold(1), sold(2))
    for number in range(4):  # more than the restarts that a failing step gets
        note = {"name": f"note{number}", "type": "int"}
        shop.avro(order(note), sold(3 + number) | {f"note{number}": 0}, of=BY_RECORD)
    counted(app, source)
    app.publish(out := kafka.name("out"), hr.select(source, "at", id="user.id"))
    results = kafka.run(app, max_rows=2)
    assert orders(results.view("orders")) == [("DE", "00:00", 6, "9.00")]
    assert sorted(row["id"] for row in results.topic(out)) == [1, 2, 3, 4, 5, 6]
    assert results.law("orders").holds
    assert letters(results, app.name) == []


@pytest.mark.slow
def test_a_registry_that_is_down_stops_a_step_and_nothing_is_skipped(
    kafka: Runs, registry: Registry
) -> None:
    app, source = declared(kafka)
    shop = Shop(kafka.servers, registry, source.topic.name)
    shop.avro(order(), sold(1))
    counted(app, source)
    kafka.run(app)
    note = {"name": "note", "type": "int"}
    shop.avro(order(note), sold(2, note=1), of=BY_RECORD)
    registry.broken = 503
    with pytest.raises(PipelineFailed, match=r"registry at .* answers 503"):
        kafka.run(app)
    registry.broken = None
    results = kafka.run(app)
    assert orders(results.view("orders")) == [("DE", "00:00", 2, "3.00")]
    assert letters(results, app.name) == []


BAD = {
    b"\0\0\0": "it is shorter than the 5 bytes before a value in the Confluent wire format",
    b'{"at": 1}': "its first byte is not the 0 of the Confluent wire format",
    b"\0\0\0\3\xe7\2": "the schema registry has no schema 999",
    b"\0\0\0\0\1\2": "it is not Avro of schema 1",
    b"\0\0\0\0\2\2": "schema 2: 'at' is string, and not timestamp",
    b"\0\0\0\0\3{}": "schema 3 is JSON, and not AVRO",
}


@pytest.mark.parametrize(
    "rounds", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["query", "rounds"]
)
def test_what_cannot_be_read_is_a_dead_letter_with_its_reason(
    kafka: Runs, registry: Registry, rounds: bool
) -> None:
    app, source = declared(kafka)
    shop = Shop(kafka.servers, registry, source.topic.name)
    shop.avro(order(), sold(1))
    registry.register("other", {"schema": order(at="string")})
    registry.register("other", {"schema": "{}", "schemaType": "JSON"})
    shop.raw(*BAD)
    shop.avro(order(), sold(2))
    if rounds:
        once = hr.deduplicate(source, by="amount", ttl=60 * SECOND, delay=10 * SECOND)
        app.publish(out := kafka.name("out"), once)
        results = kafka.run(app)
        assert [row["user"]["id"] for row in results.topic(out)] == [1]
    else:
        counted(app, source)
        results = kafka.run(app)
        assert orders(results.view("orders")) == [("DE", "00:00", 2, "3.00")]
        assert results.law("orders").holds
    found = letters(results, app.name)
    assert [reason for _, _, reason, _ in found] == [
        f"does not decode: {why}" for why in BAD.values()
    ]
    assert [row for *_, row in found][:2] == [
        '{"value":"\\u0000\\u0000\\u0000"}',
        '{"value":"{\\"at\\": 1}"}',
    ]


def test_json_behind_a_header_is_read_without_its_schema(kafka: Runs, registry: Registry) -> None:
    app, source = declared(kafka, "json-confluent")
    shop = Shop(kafka.servers, registry, source.topic.name)
    shop.json('{"title": "Order", "type": "object"}', *(
        {"user": {"id": 1, "country": "DE"}, "amount": 1.5, "at": f"2026-01-01T00:00:0{second}Z"}
        for second in range(3)
    ))  # fmt: skip
    shop.raw(b"{}", b"\0\0\0\0\1{")
    registry.broken = 503
    counted(app, source)
    results = kafka.run(app)
    assert orders(results.view("orders")) == [("DE", "00:00", 3, "4.50")]
    short, broken = (reason for _, _, reason, _ in letters(results, app.name))
    assert short.startswith("does not decode: it is shorter than the 5 bytes")
    assert broken == "does not decode: it is not JSON with the declared columns"


def test_a_consumer_reads_the_same_rows(kafka: Runs, registry: Registry) -> None:
    _, source = declared(kafka)
    name = source.topic.name
    shop = Shop(kafka.servers, registry, name)
    shop.avro(order(), sold(1))
    shop.avro(order({"name": "note", "type": "int"}), sold(2, "FR", note=1), of=BY_RECORD)
    shop.raw(b"\0\0\0\3\xe7\2")
    kafka.log.ensure_topic(source.topic)
    with kafka.log.consumer(name) as consumer:
        registry.broken = 503
        with pytest.raises(RegistryUnavailable):
            consumer.poll(timeout=timedelta(seconds=left()))
        registry.broken = None
        rows = [r.value for r in consumer.poll(timeout=timedelta(seconds=left()))]
        wanted = [sold(1), sold(2, "FR")]
        assert rows == wanted
        with pytest.raises(UnreadableRecord, match="registry has no schema 999"):
            consumer.poll(timeout=timedelta(seconds=left()))
    with kafka.log.producer() as producer, pytest.raises(Unsupported, match="does not write it"):
        producer.send(name, sold(3))
        producer.flush()


def test_without_a_registry_the_reason_is_clear(
    kafka: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_KAFKA_SCHEMA_REGISTRY_URL")
    app, source = declared(kafka)
    counted(app, source)
    with pytest.raises(InvalidSetting, match="there is no schema registry") as caught:
        hr.preflight(app, f"kafka://{kafka.servers}").require()
    assert "HEADRACE_KAFKA_SCHEMA_REGISTRY_URL" in caught.value.hint


def test_spark_and_a_consumer_read_the_same_values(registry: Registry) -> None:
    """The plan is that of real time, which judges each record by itself."""
    place = {
        "type": "record",
        "name": "Place",
        "fields": [
            {"name": "zip", "type": "string"},
            {"name": "country", "type": COUNTRY},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        ],
    }
    schema = json.dumps(
        {
            "type": "record",
            "name": "Trip",
            "fields": [
                {"name": "start", "type": place},
                {"name": "stops", "type": {"type": "array", "items": ["null", "Place"]}},
                {"name": "seen", "type": {"type": "map", "values": "Country"}},
                {"name": "code", "type": "Code"},
                {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "price", "type": ["double", "null"]},
                {"name": "at", "type": MILLIS},
            ],
        }
    )
    columns = (
        "at timestamp, price double, id string, code binary, seen map<string, string>, "
        "start struct<country: string, new: int>, stops array<struct<zip: string, code: binary>>, "
        "lacking struct<a: int>"
    )
    number = registry.register("trips-value", {"schema": schema})
    here = {"zip": "1", "country": "FR", "code": b"xy"}
    row = {
        "start": here,
        "stops": [here, None],
        "seen": {"x": "DE"},
        "code": b"ab",
        "id": str(UUID(int=1)),
        "price": None,
        "at": BEGIN,
    }
    fastavro.schemaless_writer(out := io.BytesIO(), json.loads(schema), row)
    value = header_of(number) + out.getvalue()
    topic = Topic(
        "trips", 1, parse_schema(columns), None, "at", TopicSettings(format="avro-confluent")
    )
    known, names = client.Registry({"url": registry.url}), parse_schema(columns).names
    read = ConfluentAvroRows(parse_schema(columns), known).decode([value], set())
    (wanted,) = pa.table(read, names=names).to_pylist()
    records = pa.table(
        {
            "key": pa.array([None], pa.binary()),
            "value": pa.array([value], pa.binary()),
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.array([BEGIN], pa.timestamp("us", tz="UTC")),
        }
    )
    decoder = Decoder(topic, tuple(names), known.schemas("trips"))
    judged = decoder.judged(frame_of(shared(), records))
    found = judged.select(*names, REASON).toArrow()
    assert found.to_pylist() == [{**wanted, REASON: ""}]
    assert wanted["stops"] == [{"zip": "1", "code": b"xy"}, None]
