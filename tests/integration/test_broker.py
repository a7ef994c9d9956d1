"""A real broker on this machine: started, used, killed and stopped."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.servers.java import jars
from headrace.servers.kafka import ClusterState

pytestmark = pytest.mark.service


def test_the_jars_that_the_locks_name_can_be_had() -> None:
    assert all(path.is_file() for path in (*jars("kafka"), *jars("spark-kafka")))


def test_what_is_produced_in_a_transaction_can_be_consumed(broker: ClusterState) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.create_topics([NewTopic("broker.transactions", 1)])["broker.transactions"].result()
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "broker"})
    producer.init_transactions()
    for value, kept in ((b"first", True), (b"second", False), (b"third", True)):
        producer.begin_transaction()
        producer.produce("broker.transactions", value)
        producer.flush()
        if kept:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "broker",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["broker.transactions"])
    values = [message.value() for message in consumer.consume(2, 30)]
    consumer.close()
    assert values == [b"first", b"third"]
