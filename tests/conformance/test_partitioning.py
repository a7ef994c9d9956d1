"""Partition of a record: the one that Kafka's own client chooses."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace.errors import UnknownPartition
from headrace.log import Capability, Log
from tests.conformance.stage import LONG, needs, pairs, read, send, values

# From Kafka's own tests (UtilsTest.testMurmur2): a key and its hash in Java.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def kafka_partition(key: bytes, partitions: int) -> int:
    """Kafka's BuiltInPartitioner: toPositive(murmur2(key)) % partitions."""
    return (KAFKA[key] & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("partitions", [2, 3, 7, 100])
def test_a_key_goes_where_kafka_would_put_it(log: Log, partitions: int) -> None:
    log.create_topic("sent", partitions=partitions)
    log.create_topic("appended", partitions=partitions)
    with log.producer(linger=LONG) as producer:
        pairs(producer, "sent", *((key, key) for key in KAFKA))
        keys = pa.array(list(KAFKA), pa.binary())
        producer.append("appended", pa.table({"key": keys, "value": keys}))
    for topic in ("sent", "appended"):
        where = {record.key: record.partition for record in read(log, topic)}
        assert where == {key: kafka_partition(key, partitions) for key in KAFKA}


def test_a_column_as_key_goes_where_the_same_key_goes_in_a_raw_topic(log: Log) -> None:
    log.create_topic("raw", partitions=16)
    with needs(log, Capability.TYPED_TOPICS):
        log.create_topic("text", partitions=16, schema="k string", key="k")
        log.create_topic("long", partitions=16, schema="k bigint", key="k")
        with log.producer(linger=LONG) as producer:
            for key in KAFKA:
                producer.send("text", {"k": key.decode()})
            for number in (0, 1, -1, 2**40):
                producer.send("long", {"k": number})
                producer.send("raw", b"", key=number.to_bytes(8, "big", signed=True))
        for record in read(log, "text"):
            assert record.partition == kafka_partition(record.key.encode(), 16)
        expected = {
            int.from_bytes(r.key, "big", signed=True): r.partition for r in read(log, "raw")
        }
        assert {r.key: r.partition for r in read(log, "long")} == expected


def test_a_tombstone_goes_to_the_partition_of_its_key(log: Log) -> None:
    log.create_topic("raw", partitions=16)
    for key in KAFKA:
        send(log, "raw", b"x", key=key)
        send(log, "raw", None, key=key)
    assert {record.partition for record in read(log, "raw") if record.value is None} == {
        record.partition for record in read(log, "raw") if record.value is not None
    }
    with needs(log, Capability.TYPED_TOPICS):
        log.create_topic("typed", partitions=16, schema="k string, v int", key="k")
        for key in KAFKA:
            send(log, "typed", None, key=key.decode())
        for record in read(log, "typed"):
            assert record.value is None
            assert record.partition == kafka_partition(record.key.encode(), 16)


def test_records_without_a_key_take_turns(log: Log) -> None:
    log.create_topic("clicks", partitions=3)
    with log.producer(linger=LONG) as producer:
        for number in range(9):
            producer.send("clicks", str(number))
    assert Counter(record.partition for record in read(log, "clicks")) == {0: 3, 1: 3, 2: 3}


def test_records_without_a_key_take_turns_over_batches(log: Log) -> None:
    log.create_topic("clicks", partitions=3)
    with log.producer(linger=LONG) as producer:
        for number in range(9):
            producer.send("clicks", str(number))
            producer.flush()
    assert Counter(record.partition for record in read(log, "clicks")) == {0: 3, 1: 3, 2: 3}


def test_an_appended_batch_without_a_key_stays_together_and_batches_take_turns(log: Log) -> None:
    log.create_topic("clicks", partitions=3)
    with log.producer() as producer:
        for name in "abc":
            producer.append("clicks", pa.table({"value": [name] * 4}))
    whole = {frozenset(values(log, "clicks", partitions=[p])) for p in range(3)}
    assert whole == {frozenset([b"a"]), frozenset([b"b"]), frozenset([b"c"])}


def test_in_a_batch_with_some_keys_only_the_others_take_turns(log: Log) -> None:
    log.create_topic("clicks", partitions=4)
    keys = pa.array([b"21", None, None, None, None, b"foobar"], pa.binary())
    with log.producer() as producer:
        producer.append("clicks", pa.table({"key": keys, "value": ["x"] * 6}))
    found = read(log, "clicks")
    assert {r.key: r.partition for r in found if r.key} == {
        key: kafka_partition(key, 4) for key in (b"21", b"foobar")
    }
    assert sorted(r.partition for r in found if r.key is None) == [0, 1, 2, 3]


def test_a_named_partition_counts_more_than_the_key(log: Log) -> None:
    log.create_topic("clicks", partitions=4)
    for partition in range(4):
        send(log, "clicks", b"sent", key=b"21", partition=partition)
    data = pa.table({"key": ["21", "foobar"], "value": ["appended"] * 2})
    with log.producer() as producer:
        producer.append("clicks", data, partition=3)
    assert [len(values(log, "clicks", partitions=[p])) for p in range(4)] == [1, 1, 1, 3]


@pytest.mark.parametrize("partition", [-1, 2, 99])
def test_a_partition_that_is_not_there_is_refused(log: Log, partition: int) -> None:
    log.create_topic("clicks", partitions=2)
    with log.producer(linger=LONG) as producer:
        with pytest.raises(UnknownPartition, match=str(partition)):
            producer.send("clicks", b"x", partition=partition)
        with pytest.raises(UnknownPartition, match=str(partition)):
            producer.append("clicks", pa.table({"value": ["x"]}), partition=partition)
        transaction = producer.transaction()
        with pytest.raises(UnknownPartition, match=str(partition)):
            transaction.send("clicks", b"x", partition=partition)
    with pytest.raises(UnknownPartition, match=str(partition)):
        log.read("clicks", partitions=[partition])
    assert log.topic("clicks").records == 0


def test_records_of_one_key_keep_their_order(log: Log) -> None:
    log.create_topic("clicks", partitions=4)
    with log.producer(linger=LONG, batch_bytes=64) as producer:
        for number in range(200):
            producer.send("clicks", b"%03d" % number, key=b"%d" % (number % 7))
        keys = pa.array([b"%d" % (n % 7) for n in range(200, 400)])
        rows = pa.array([b"%03d" % n for n in range(200, 400)])
        producer.append("clicks", pa.table({"key": keys, "value": rows}))
    for key in range(7):
        mine = [r.value for r in read(log, "clicks") if r.key == b"%d" % key]
        assert mine == [b"%03d" % n for n in range(400) if n % 7 == key]


def test_producers_that_live_for_one_record_do_not_all_choose_the_same_partition(log: Log) -> None:
    log.create_topic("t", partitions=3)
    for _ in range(9):
        with log.producer() as producer:
            producer.send("t", b"x")
    assert all(state.end > 0 for state in log.topic("t").partitions)
