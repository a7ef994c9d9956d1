"""Topics of CloudEvents, in structured and in binary mode, as other programs write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.servers.kafka.state import ClusterState
from tests.kafka_runs import Runs, letters, runs
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "ce_id string, ce_type string, ce_time timestamp, ce_try int, url string, n bigint"
REQUIRED = {"specversion": "1.0", "source": "/shop", "type": "click"}


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


class Clicks:
    """A program that writes clicks as events."""

    def __init__(self, kafka: Runs, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.servers})
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result(left())

    def raw(self, value: bytes, **headers: str) -> None:
        given = [(name, text.encode()) for name, text in headers.items()]
        self._producer.produce(self._topic, value, partition=0, headers=given)
        self._producer.flush()

    def structured(self, id: int, second: int, url: str, **more: object) -> None:
        moment = (BEGIN + second * SECOND).isoformat()
        event = {**REQUIRED, "id": str(id), "time": moment, "data": {"url": url, "n": id}, **more}
        header = {"content-type": "application/cloudevents+json; charset=UTF-8"}
        self.raw(json.dumps(event).encode(), **header)

    def binary(self, id: int, second: int, url: str, **more: str) -> None:
        moment = (BEGIN + second * SECOND).isoformat()
        attributes = {**REQUIRED, "id": str(id), "time": moment, **more}
        headers = {f"ce_{name}": text for name, text in attributes.items()}
        data = json.dumps({"url": url, "n": id}).encode()
        self.raw(data, **{"content-type": "application/json"}, **headers)


@pytest.mark.parametrize(
    "rounds", [pytest.param(False, marks=pytest.mark.slow), True], ids=["query", "rounds"]
)
def test_events_of_both_modes_are_rows_of_one_topic(kafka: Runs, rounds: bool) -> None:
    app = hr.App(kafka.name("app"))
    source = app.topic(
        kafka.name("clicks"),
        schema=SCHEMA,
        event_time="ce_time",
        settings={"format": "cloudevents"},
    )
    clicks = Clicks(kafka, source.topic.name)
    clicks.structured(1, 1, "a")
    clicks.binary(2, 2, "a", **{"try": "3"})
    clicks.structured(3, 300, "b", **{"try": 4})
    clicks.raw(b"{}")
    clicks.binary(4, 4, "b", **{"try": "x"})
    clicks.raw(b"{", ce_specversion="1.0")
    bad = [
        "does not decode: it is not a CloudEvent of version 1: its specversion is missing",
        "does not decode: its attribute cannot be read as declared: ce_try",
        "does not decode: its data is not JSON with the declared columns",
    ]
    out, late = kafka.name("out"), kafka.name("late")
    if rounds:
        once = hr.deduplicate(source, by="ce_id", ttl=600 * SECOND, delay=600 * SECOND)
        app.publish(out, once)
        results = kafka.run(app)
        found = results.topic(out)
        assert [(r["ce_id"], r["ce_try"], r["url"], r["n"]) for r in found] == [
            ("1", None, "a", 1),
            ("2", 3, "a", 2),
            ("3", 4, "b", 3),
        ]
    else:
        per_minute = hr.aggregate(
            source,
            by="url",
            window=hr.tumbling(60 * SECOND),
            lateness=hr.Lateness(10 * SECOND, 20 * SECOND),
            hits=hr.count(),
            tries=hr.max("ce_try"),
        )
        app.view("hits", per_minute)
        app.publish(late, per_minute.late)
        kafka.run(app)
        clicks.binary(5, 3, "late")  # read again with its headers
        results = kafka.run(app)
        rows = results.view("hits")
        assert [(r["url"], r["hits"], r["tries"]) for r in rows] == [("a", 2, 3), ("b", 1, 4)]
        assert [(r["ce_id"], r["url"]) for r in results.topic(late)] == [("5", "late")]
        assert results.law("hits").holds
    assert [reason for _, _, reason, _ in letters(results, app.name)] == bad
