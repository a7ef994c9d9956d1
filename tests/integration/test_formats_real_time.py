"""Formats of other programs in real time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.log import open_log
from headrace.servers.kafka import ClusterState
from tests.live import Live, rows_in
from tests.orders import BY_RECORD, Shop, order, sold
from tests.registry import Registry, serving

pytestmark = [pytest.mark.service, pytest.mark.slow]

APP = """
import headrace as hr

app = hr.App("formats")
orders = app.topic(
    "formats.orders", schema="user struct<id: bigint>, at timestamp", event_time="at",
    settings={"format": "avro-confluent", "skew": "none"},
)
app.publish("formats.ids", hr.select(orders, "at", id="user.id"))
clicks = app.topic(
    "formats.clicks", schema="ce_id string, ce_time timestamp, n bigint", event_time="ce_time",
    settings={"format": "cloudevents", "skew": "none"},
)
app.publish("formats.clicked", clicks)
"""


def test_new_schemas_and_events_of_both_modes_are_read_row_by_row(
    broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "formats_app.py"
    file.write_text(APP)
    with serving(Registry()) as registry:
        monkeypatch.setenv("HEADRACE_KAFKA_SCHEMA_REGISTRY_URL", registry.url)
        shop = Shop(broker.servers, registry, "formats.orders")
        events = Shop(broker.servers, registry, "formats.clicks")
        shop.avro(order(), sold(1))
        event = {"specversion": "1.0", "id": "a", "time": "2026-01-01T00:00:00Z", "data": {"n": 1}}
        events.raw(json.dumps(event).encode())
        producer = Producer({"bootstrap.servers": broker.servers})
        headers = [
            ("ce_specversion", b"1.0"),
            ("ce_id", b"b"),
            ("ce_time", b"2026-01-01T00:00:00Z"),
        ]
        producer.produce("formats.clicks", b'{"n": 2}', headers=headers)
        producer.flush()
        with Live(f"{file}:app", broker.url, tmp_path) as live, open_log(broker.url) as log:
            live.start()
            live.until(lambda: len(rows_in(log, "formats.ids")) == 1)
            live.until(lambda: len(rows_in(log, "formats.clicked")) == 2)
            note = {"name": "note", "type": "int"}
            shop.avro(order(note), sold(2) | {"note": 1}, of=BY_RECORD)
            shop.raw(b"\0\0\0\0\1", b"no header")
            live.until(lambda: {row["id"] for row in rows_in(log, "formats.ids")} == {1, 2})
            live.until(lambda: len(rows_in(log, "formats.dead")) >= 2)
            said = live.stop()
            assert [(r["ce_id"], r["n"]) for r in rows_in(log, "formats.clicked")] == [
                ("a", 1),
                ("b", 2),
            ]
            assert {(row["reason"], row["row"]) for row in rows_in(log, "formats.dead")} == {
                (
                    "does not decode: it is not Avro of schema 1",
                    '{"value":"\\u0000\\u0000\\u0000\\u0000\\u0001"}',
                ),
                (
                    "does not decode: its first byte is not the 0 of the Confluent wire format",
                    '{"value":"no header"}',
                ),
            }
            assert set(said) == {"formats.ids", "formats.clicked"}
