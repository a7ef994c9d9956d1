"""The first hour with headrace: a pipeline on an existing topic, in one file and one run."""

from __future__ import annotations

import random
import runpy
from collections import Counter
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.clock import to_datetime
from headrace.servers.kafka.state import ClusterState
from tests.kafka_runs import letters, runs
from tests.spark import shared
from tests.waiting import left

pytestmark = pytest.mark.service

PIPELINE = """
from datetime import timedelta

import headrace as hr

app = hr.App("{app}")
clicks = app.topic(
    "{topic}",
    schema="id bigint, timestamp bigint, user struct<id: bigint, country: string>",
    event_time="timestamp_millis(timestamp)",
)
per_country = hr.aggregate(
    hr.filter(clicks, "user.country <> 'XX'"),
    by="user.country",
    window=hr.tumbling(timedelta(minutes=1)),
    lateness=hr.Lateness(delay=timedelta(minutes=10), grace=timedelta(0)),
    clicks=hr.count(),
    people=hr.max("user.id"),
)
app.view("per_country", per_country)
"""
START = 1_794_940_181_594


def test_a_nested_topic_of_another_program_is_counted_per_country_and_minute(
    broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    servers = f"127.0.0.1:{broker.nodes[0].port}"
    with runs(servers, shared()) as kafka:
        topic, dice = kafka.name("clicks"), random.Random(5)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 3)])[topic].result(left())
        producer = Producer({"bootstrap.servers": servers})
        expected: Counter[tuple[str, str]] = Counter()
        for number in range(2_000):
            millis = START + number * 100 + dice.randrange(-30_000, 30_000)
            user = {"id": dice.randrange(50), "country": dice.choice(["DE", "PT", "US", "XX"])}
            row = {"id": number, "timestamp": millis, "user": user, "more": {"a": [1]}}
            producer.produce(topic, orjson.dumps(row), timestamp=millis)
            if user["country"] != "XX":
                minute = to_datetime(millis // 60_000 * 60_000_000)
                expected[str(user["country"]), str(minute)[:16]] += 1
        for bad in (b'{"timestamp": "soon"}', b'{"user": {"id": 7}}', b"\xff"):
            producer.produce(topic, bad)
        producer.flush()

        file = tmp_path / "first_hour.py"
        file.write_text(PIPELINE.format(app=kafka.name("first"), topic=topic))
        app = runpy.run_path(str(file))["app"]
        hr.preflight(app, kafka.log.url).require()
        results = kafka.run(app, max_rows=700)

        found = {
            (row["country"], row["window_start"][:16]): row["clicks"]
            for row in results.view("per_country")
        }
        assert found == dict(expected)
        assert results.law("per_country").holds
        reasons = sorted(reason for _, _, reason, _ in letters(results, app.name))
        assert reasons == ["does not decode", "does not decode", "no event time"]
        assert kafka.log.topic(topic).topic.event_time == "timestamp_millis(timestamp)"
