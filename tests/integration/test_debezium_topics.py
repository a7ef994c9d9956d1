"""Topics that Debezium has written to Kafka, read as captured tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.errors import InvalidSchema, UnreadableRecord
from headrace.log.kafka.rows_bytes import Garbage
from headrace.log.kafka.rows_debezium import DebeziumRows
from headrace.pipeline.stream import sources
from headrace.pipeline.tables import Table
from headrace.plan.arrow_frames import frame_of
from headrace.plan.kafka.decode import REASON, Decoder
from headrace.servers.kafka.state import ClusterState
from headrace.store.following import followed_in
from headrace.store.suite import rows_of
from tests.debezium import SCHEMA, change, digits, key, product
from tests.kafka_runs import Runs, letters, runs
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

BEGIN = 1_767_225_600_000
"""The first moment of 2026, in milliseconds."""

DEBEZIUM = {"format": "debezium-json"}

Record = tuple[bytes | None, bytes | None]


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def fill(kafka: Runs, topic: str, records: Sequence[Record]) -> None:
    """Write records as Kafka Connect does, into a topic of its own with one partition."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(left())
    producer = Producer({"bootstrap.servers": kafka.servers})
    for name, value in records:
        producer.produce(topic, value, name, partition=0)
    producer.flush()


def declared(topic: str = "products") -> tuple[hr.App, Table]:
    app = hr.App(f"app.{topic}")
    return app, app.captured(topic, schema=SCHEMA, key="id", settings=DEBEZIUM)


def events(schemas: bool) -> list[Record]:
    """Snapshot, insert, update, delete with its tombstone, and an incremental snapshot."""

    def record(id: int, op: str, second: int, **rows: Any) -> Record:
        more: dict[str, Any] = {"snapshot": "incremental"} if second == 6 else {}
        made = change(op, millis=BEGIN + 1000 * second, schemas=schemas, **rows, **more)
        return key(id, schemas=schemas), made

    def row(id: int, name: str = "Chair", price: str = "19.90") -> dict[str, Any]:
        if schemas:
            return product(id, name, price)
        return product(id, name) | {"price": price, "at": "2026-01-01T00:00:00.123456"}

    return [
        record(1, "r", 0, after=row(1)),
        record(2, "r", 0, after=row(2, "Table", "-0.05")),
        record(3, "c", 1, after=row(3, "Lamp")),
        record(1, "u", 2, after=row(1, "Armchair", "12345678.90")),
        record(2, "d", 3, before={"id": 2, "name": None, "price": None, "at": None, "day": None}),
        (key(2, schemas=schemas), None),
        record(4, "r", 6, after=row(4, "Desk")),
    ]


BAD: list[tuple[Record, str]] = [
    ((None, change("t", millis=BEGIN)), "it truncates the table"),
    ((key(9), b"{}"), "it is not the JSON of a change event"),
    ((key(9), b'{"id": 9, "name": "flat"}'), "it is not the JSON of a change event"),
    ((key(9), b"no json"), "it is not the JSON of a change event"),
    ((key(9), change("c", millis=BEGIN)), "it has no row"),
    (
        (key(9), change("u", after=product(9, "__debezium_unavailable_value"), millis=BEGIN)),
        "it lacks a value that has not changed, which REPLICA IDENTITY FULL sends: name",
    ),
    (
        (key(9), change("u", after=product(9), millis=BEGIN, schemas=False)),
        "its value cannot be read as declared: price B8Y=",
    ),
    (
        (key(9), change("u", after=product(9, at="soon"), millis=BEGIN)),
        "its value cannot be read as declared: at soon",
    ),
]


@pytest.mark.parametrize(
    "schemas",
    [True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["with schemas", "without schemas"],
)
def test_a_topic_of_debezium_is_the_table_that_it_was_captured_from(
    kafka: Runs, schemas: bool
) -> None:
    topic = kafka.name("products")
    fill(kafka, topic, [*events(schemas), *(record for record, _ in BAD)])
    app, products = declared(topic)
    index = hr.Search(columns=["name"])
    app.view("products", products, store=index)
    results = kafka.run(app)
    found = {row["id"]: row for row in results.view("products")}
    assert {id: row["name"] for id, row in found.items()} == {1: "Armchair", 3: "Lamp", 4: "Desk"}
    assert [str(found[id]["price"]) for id in (1, 3)] == ["12345678.90", "19.90"]
    assert found[1]["at"] == "2026-01-01 00:00:00.123456"
    assert found[1]["seen"] == "2026-01-01 00:00:00.500000"
    assert found[1]["day"] == "2026-01-01"
    assert results.law("products").holds
    reasons = [reason for _, _, reason, _ in letters(results, app.name)]
    wanted = [f"does not decode: {reason}" for _, reason in BAD]
    assert all(r.startswith(w) for r, w in zip(reasons, wanted, strict=True)), reasons

    # Debezium goes on: the row comes again, and another key is taken.
    late = change("c", after=product(2, "Bench"), millis=BEGIN + 9000, schemas=True)
    fill(kafka, topic, [(key(2), late)])
    results = kafka.run(app)
    names = ["Armchair", "Bench", "Desk", "Lamp"]
    assert sorted(row["name"] for row in results.view("products")) == names
    followed = followed_in(kafka.log, app.name, "products", index.form)
    assert followed is not None
    with index.live(followed.view) as live:
        assert sorted(row["name"] for row in rows_of(live)) == names


def test_spark_and_a_consumer_read_the_same_events(kafka: Runs) -> None:
    topic = kafka.name("products")
    good = [
        *events(True),
        *events(False),
        (b"\x00\xff", change("c", after=product(5, price="-99999999.99"), millis=BEGIN)),
        (key(6), change("c", after=product(6, price="0.00"), millis=BEGIN)),
        (key(7), change("c", after=product(7, price="7"), millis=BEGIN, ts_us=None)),
    ]
    wide = {"scale": 3, "value": digits("-1.500")}
    good.append((key(8), change("c", after=product(8) | {"price": wide}, millis=BEGIN)))
    _, products = declared(topic)
    (source,) = sources(products)
    schema = source.topic.schema
    assert schema is not None
    values = [value for _, value in good if value is not None]
    columns = DebeziumRows(schema).decode(values, set())
    wanted = pa.table(columns, names=schema.names).drop(["key"]).to_pylist()
    judged = Decoder.of(source.topic).judged(frame_of(shared(), _records(good))).toArrow()
    assert judged.column(REASON).to_pylist() == [""] * len(values)
    found = judged.select(schema.names).drop(["key"]).to_pylist()
    assert found == wanted
    assert wanted[-2]["source"]["ts_us"] == BEGIN * 1000
    assert [row["after"]["price"] for row in wanted[-4:]] == [
        Decimal("-99999999.99"),
        Decimal("0.00"),
        Decimal("0.07"),
        Decimal("-1.50"),
    ]
    assert wanted[0]["after"] == {
        "id": 1,
        "name": "Chair",
        "price": Decimal("19.90"),
        "at": datetime(2026, 1, 1, 0, 0, 0, 123456),
        "seen": datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC),
        "day": date(2026, 1, 1),
    }
    assert (wanted[0]["source"]["tx"], wanted[0]["source"]["position"]) == ("555", "24023128")
    assert [row["source"]["snapshot"] for row in wanted[:6]] == [
        "initial", "initial", None, None, None, "incremental",
    ]  # fmt: skip
    for (name, value), reason in BAD:
        bad = Decoder.of(source.topic).judged(frame_of(shared(), _records([(name, value)])))
        (row,) = bad.toArrow().to_pylist()
        with pytest.raises(Garbage) as caught:
            DebeziumRows(schema).decode([value or b""], set())
        assert row[REASON] == f"does not decode: {caught.value.reason}"
        assert caught.value.reason.startswith(reason)

    fill(kafka, topic, [*good[:7], BAD[0][0]])
    kafka.log.ensure_topic(source.topic)
    with kafka.log.consumer(topic) as consumer:
        records = consumer.poll(timeout=timedelta(seconds=left()))
        keys = [record.key for record in records]
        assert keys == [f'{{"id":{id}}}' for id in (1, 2, 3, 1, 2, 2, 4)]
        with pytest.raises(UnreadableRecord, match="truncates the table"):
            consumer.poll(timeout=timedelta(seconds=left()))


def test_columns_that_are_no_event_are_refused() -> None:
    topic = hr.App("a").topic("t", schema="id bigint, at timestamp", event_time="at").topic
    with pytest.raises(InvalidSchema, match="'id' is not one of a change event of Debezium"):
        DebeziumRows(topic.schema)


def _records(records: Sequence[Record]) -> pa.Table:
    count = len(records)
    moment = datetime(2026, 2, 1, tzinfo=UTC)
    return pa.table(
        {
            "key": pa.array([name for name, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([moment] * count, pa.timestamp("us", tz="UTC")),
        }
    )
