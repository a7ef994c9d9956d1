"""The locked jars and this Spark work together: topics as streams, and Avro both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.servers.kafka import ClusterState
from tests.waiting import left

pytestmark = [pytest.mark.service, pytest.mark.slow]

ROWS = [
    '{"item":"pen","number":1,"price":2.50,"at":"2026-01-01T12:00:00.000001Z","tags":["a","b"]}',
    '{"item":"ink","price":99999999.99,"at":"1969-12-31T23:59:59.000000Z","tags":[]}',
]


def test_topics_are_streams_of_spark_and_avro_comes_back_as_it_was(
    broker: ClusterState, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for made in admin.create_topics([NewTopic("jars.in", 2), NewTopic("jars.out", 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.servers})
    for partition, row in enumerate(ROWS):
        producer.produce("jars.in", row, partition=partition)
    assert producer.flush(30) == 0
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.avro_topics", broker.servers, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=left(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"].startswith("4.3.")
    assert report["bad"] == [None] * 5, "garbage is a row of nothing, and not a failure"
    group = {"group.id": "jars", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.servers, **group})
    consumer.subscribe(["jars.out"])
    found = [value.decode() for one in consumer.consume(2, 30) if (value := one.value())]
    consumer.close()
    assert sorted(found) == sorted(ROWS)
