"""Faults of a log on Kafka: of the broker, of records, and of requests."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.clock import SECOND, SystemClock
from headrace.errors import (
    AccessDenied,
    DiskFull,
    InvalidSchema,
    LogBusy,
    LogUnavailable,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicExists,
    UnreadableRecord,
)
from headrace.log import EARLIEST, Log, Offset, Topic, TopicSettings, open_log
from headrace.log.kafka.consumer import KafkaConsumer
from headrace.log.kafka.fences import PARTITIONS
from headrace.log.kafka.fences import TOPIC as FENCES
from headrace.log.kafka.messages import Outgoing
from headrace.log.kafka.sending import Sender, Sent
from headrace.log.partitioner import partition_of
from headrace.schema.ddl import parse_schema
from headrace.servers.java.ports import free
from headrace.servers.kafka import ClusterState
from tests import kafka
from tests.integration import processes

pytestmark = pytest.mark.service

CANARY = "c4n4ry-7f3a"


@pytest.fixture
def log(broker: ClusterState) -> Iterator[Log]:
    with open_log(broker.url) as made:
        yield made


def values(log: Log, topic: str, **where: Any) -> list[Any]:
    return [r.value for batch in log.read(topic, **where) for r in batch.records()]


def by_others(broker: ClusterState, topic: str, *values: bytes | None, **record: Any) -> None:
    """Write to a topic with another client."""
    producer = KafkaProducer({"bootstrap.servers": broker.servers})
    for value in values:
        producer.produce(topic, value, **record)
    assert producer.flush(30) == 0


def made_by_others(broker: ClusterState, name: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
    while name not in admin.list_topics().topics:  # the controller knows it before the broker
        SystemClock().sleep(SECOND // 50)


def test_without_a_broker_a_log_cannot_be_opened_and_says_so() -> None:
    (port,) = free(1)
    with pytest.raises(LogUnavailable, match=rf"127\.0\.0\.1:{port}") as caught:
        open_log(f"kafka://127.0.0.1:{port}?timeout=2s")
    assert "headrace kafka status" in caught.value.hint


def test_a_broker_that_does_not_let_one_in_is_not_told_of_with_the_password(
    broker: ClusterState, capfd: pytest.CaptureFixture[str]
) -> None:
    login = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username=bob&timeout=3s"
    with pytest.raises((LogUnavailable, AccessDenied)) as caught:
        open_log(f"{broker.url}?{login}&sasl.password={CANARY}")
    out, err = capfd.readouterr()
    texts = [str(caught.value), repr(caught.value), repr(caught.value.details), out, err]
    assert not any(CANARY in text for text in texts)


def test_nothing_of_an_open_log_shows_its_secrets(broker: ClusterState) -> None:
    with open_log(f"{broker.url}?ssl.key.password={CANARY}") as log:
        assert log.url == f"{broker.url}?ssl.key.password=***"
        assert CANARY not in repr(log) + str(vars(log))


@pytest.mark.slow
def test_a_broker_that_goes_away_and_comes_back_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with (
        kafka.running(tmp_path / "kafka") as cluster,
        open_log(f"{cluster.state().url}?timeout=8s") as log,
    ):
        log.create_topic("t")
        one = pa.table({"value": ["1"]})
        with log.producer(id="p") as producer, log.consumer("t", group="g") as consumer:
            producer.append("t", pa.table({"value": ["0"]}), sequence=0)
            assert [r.value for r in consumer.poll()] == [b"0"]
            cluster.kill(1)
            with pytest.raises(LogUnavailable):
                producer.append("t", one, sequence=1)
            with pytest.raises(LogUnavailable):
                list(log.read("t"))
            with pytest.raises(LogUnavailable):
                consumer.poll()
            cluster.up()
            assert _patiently(lambda: producer.append("t", one, sequence=1)).records == 1
            assert _patiently(lambda: values(log, "t")) == [b"0", b"1"]
            polled: list[bytes] = []
            while b"1" not in polled:
                polled += _patiently(lambda: [r.value for r in consumer.poll()])
            assert polled[-1] == b"1"


def _patiently(do: Any) -> Any:
    """Retry while the log is unavailable."""
    for _ in range(30):
        try:
            return do()
        except LogUnavailable:
            continue
    return do()


def test_a_record_of_a_mebibyte_passes_and_a_larger_one_is_refused(log: Log) -> None:
    log.create_topic("large")
    with log.producer() as producer:
        producer.send("large", bytes(1 << 20))
        with pytest.raises(RecordTooLarge):
            producer.send("large", bytes((1 << 20) + 1))
    assert [len(value) for value in values(log, "large")] == [1 << 20]


def test_a_row_that_is_larger_as_json_passes_too(log: Log) -> None:
    log.create_topic("large.rows", schema="raw binary, text string")
    row = {"raw": bytes(400_000), "text": '"' * 600_000}
    with log.producer() as producer:
        producer.send("large.rows", row)
    assert values(log, "large.rows") == [row]


def test_what_the_broker_finds_too_large_is_refused_by_name(broker: ClusterState, log: Log) -> None:
    log.create_topic("narrow")
    producer = log.producer()
    producer.send("narrow", b"small")
    producer.flush()
    _configure(broker, "narrow", "max.message.bytes", "1000")  # while the producer writes
    with pytest.raises(RecordTooLarge, match="narrow"):
        producer.send("narrow", os.urandom(5_000)).wait()
    producer.close()
    assert values(log, "narrow") == [b"small"]


def _configure(broker: ClusterState, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()


class Shut:
    """A sender that holds back messages of some topics until it is opened."""

    def __init__(self, sender: Sender, *topics: str) -> None:
        self._sender = sender
        self.topics = topics

    def send(self, messages: Sequence[Outgoing]) -> Sent:
        through = [n for n, message in enumerate(messages) if message.topic not in self.topics]
        found = self._sender.send([messages[n] for n in through])
        lost = set(range(len(messages))) - set(through)
        return Sent(
            {through[n]: place for n, place in found.offsets.items()},
            dict.fromkeys(lost, KafkaError(KafkaError._MSG_TIMED_OUT)),
        )

    def close(self) -> None:
        self._sender.close()


def shut(log: Log, producer: Any, *topics: str) -> Shut:
    """Keep a producer from reaching some topics."""
    for topic in topics:
        log.create_topic(topic, partitions=2)
    producer.append(topics[0], pa.table({"value": ["first"]}))
    committer = producer._committer
    committer._plain = made = Shut(committer._plain, *topics)
    return made


def test_what_is_appended_after_an_append_that_failed_is_what_is_written(log: Log) -> None:
    with log.producer() as producer:
        door = shut(log, producer, "doors")
        with pytest.raises(LogUnavailable):
            producer.append("doors", pa.table({"value": ["given up"]}))
        door.topics = ()
        assert producer.append("doors", pa.table({"value": ["appended"]})).records == 1
        door.topics = ("doors",)
        with pytest.raises(LogUnavailable):
            producer.append("doors", pa.table({"value": ["given up"]}))
        producer.send("doors", b"sent")
        with pytest.raises(LogUnavailable):
            producer.flush()
        door.topics = ()
    assert sorted(values(log, "doors")) == [b"appended", b"first", b"sent"]


def test_what_got_through_of_a_commit_is_not_sent_again_with_the_rest(log: Log) -> None:
    log.create_topic("open")
    with log.producer() as producer:
        door = shut(log, producer, "closed")
        producer.send("open", b"1")
        producer.send("closed", b"2")
        with pytest.raises(LogUnavailable):
            producer.flush()
        with pytest.raises(LogUnavailable):
            producer.append("open", pa.table({"value": ["3"]}))
        door.topics = ()
        receipt = producer.append("open", pa.table({"value": ["3"]}))
        assert [(ack.topic, ack.first, ack.end) for ack in receipt.acks] == [("open", 1, 2)]
    assert values(log, "open") == [b"1", b"3"]
    assert sorted(values(log, "closed")) == [b"2", b"first"]


@pytest.mark.parametrize("assignor", ["sticky", "range"])
def test_partitions_that_nothing_was_known_of_when_they_were_assigned_are_read_later(
    log: Log, monkeypatch: pytest.MonkeyPatch, assignor: str
) -> None:
    topic = f"owed.{assignor}"
    log.create_topic(topic, partitions=2)
    with log.producer() as producer:
        for number in range(6):
            producer.send(topic, b"%d" % number, partition=number % 2)
    takes = KafkaConsumer._take_over
    failures = [LogUnavailable("not now", hint="wait"), KafkaException(KafkaError(5))]

    def take_over(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return takes(*args)

    first = log.consumer(topic, group=topic, assignor=assignor, commit="manual")
    with log.consumer(topic, group=topic, assignor=assignor, commit="manual") as consumer:
        while not consumer.assignment:
            first.poll()
            consumer.poll()
        consumer.seek(EARLIEST)
        monkeypatch.setattr(KafkaConsumer, "_take_over", take_over)
        first.close()
        found: set[bytes] = set()
        while len(consumer.assignment) < 2 or len(found) < 6:
            found |= _patiently(lambda: {r.value for r in consumer.poll()})
        assert sorted(found) == [b"%d" % number for number in range(6)]
        consumer.commit()
    assert not failures
    assert [lag.committed for lag in log.group(topic).lags] == [3, 3]


def test_offsets_that_retention_has_removed_are_named_and_never_jumped_over(
    broker: ClusterState, log: Log
) -> None:
    log.create_topic("cut")
    with log.producer() as producer:
        producer.append("cut", pa.table({"value": [str(n) for n in range(10)]}))
    with log.consumer("cut", group="cut.readers") as consumer:
        assert len(consumer.poll(max_records=2)) == 2
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for answer in admin.delete_records([TopicPartition("cut", 0, 6)]).values():
        answer.result()
    with pytest.raises(OffsetOutOfRange, match="from 6 up to 10"):
        log.read("cut", start=Offset(2))
    with log.consumer("cut", group="cut.readers") as consumer:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="from 6 up to 10") as caught:
                consumer.poll()
            assert (caught.value.details["offset"], caught.value.details["first"]) == (2, 6)
        consumer.seek(EARLIEST)
        assert [r.value for r in consumer.poll()] == [b"6", b"7", b"8", b"9"]


def test_garbage_in_a_typed_topic_is_named_and_can_be_passed(
    broker: ClusterState, log: Log
) -> None:
    log.create_topic("orders.garbage", schema="id string not null, n int", key="id")
    by_others(broker, "orders.garbage", b'{"id":"a","n":1}', b"\xff\x00", b'{"id":"b"}', key=b"k")
    with pytest.raises(UnreadableRecord, match="offset 1 in partition 0") as caught:
        values(log, "orders.garbage")
    assert (caught.value.details["partition"], caught.value.details["offset"]) == (0, 1)
    with log.consumer("orders.garbage", group="orders.garbage") as consumer:
        assert [r.value for r in consumer.poll()] == [{"id": "a", "n": 1}]
        for _ in range(2):
            with pytest.raises(UnreadableRecord):
                consumer.poll()
        consumer.seek(Offset(2))
        assert [r.value for r in consumer.poll()] == [{"id": "b", "n": None}]
    assert log.group("orders.garbage").lag == 0


def test_a_topic_that_others_have_made_is_one_of_raw_bytes(broker: ClusterState, log: Log) -> None:
    made_by_others(broker, "theirs", 3, retention_ms="60000", cleanup_policy="compact,delete")
    by_others(broker, "theirs", b"v", None, key=b"k", headers=[("h", b"1")])
    topic = log.topic("theirs").topic
    assert (topic.partitions, topic.schema) == (3, None)
    assert topic.settings.cleanup == "compact,delete"
    assert topic.settings.retention is not None
    assert [(r.key, r.value, r.headers) for b in log.read("theirs") for r in b.records()] == [
        (b"k", b"v", (("h", b"1"),)),
        (b"k", None, (("h", b"1"),)),
    ]


def test_columns_can_be_declared_over_a_topic_that_others_have_made(
    broker: ClusterState, log: Log
) -> None:
    made_by_others(broker, "theirs.rows", 2)
    by_others(broker, "theirs.rows", b'{"id":"a","n":1,"more":true}')
    schema = parse_schema("id string, n int")
    with pytest.raises(TopicExists):
        log.create_topic("theirs.rows", schema=schema)
    declared = log.ensure_topic(Topic("theirs.rows", 1, schema, "id"))
    assert (declared.partitions, declared.key, declared.schema) == (2, "id", schema)
    assert values(log, "theirs.rows") == [{"id": "a", "n": 1}]
    again = log.ensure_topic(Topic("theirs.rows", 1, parse_schema("x int")))
    assert again.schema == schema, "who declares it first has said what it is"


def test_a_topic_made_again_by_others_has_none_of_the_old_columns(
    broker: ClusterState, log: Log
) -> None:
    log.create_topic("remade", schema="id string")
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_topics(["remade"])["remade"].result()
    while "remade" in {topic.name for topic in log.topics()}:
        continue
    made_by_others(broker, "remade", 1)
    assert log.topic("remade").topic.schema is None


def test_a_key_is_where_kafkas_own_client_puts_it(broker: ClusterState, log: Log) -> None:
    made_by_others(broker, "spread", 7)
    keys = [b"%d" % number for number in range(50)]
    client = KafkaProducer({"bootstrap.servers": broker.servers, "partitioner": "murmur2_random"})
    for key in keys:
        client.produce("spread", b"theirs", key)
    assert client.flush(30) == 0
    with log.producer() as producer:
        for key in keys:
            producer.send("spread", b"ours", key)
    where: dict[bytes, set[int]] = {}
    for batch in log.read("spread"):
        for record in batch.records():
            where.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in where.values())


def test_a_row_without_a_time_has_that_of_its_arrival_if_the_topic_says_so(log: Log) -> None:
    settings = {"missing_time": "arrival"}
    log.create_topic(
        "timeless", schema="k string, at timestamp", key="k", event_time="at", settings=settings
    )
    with log.producer() as producer:
        producer.send("timeless", {"k": "a"})
        producer.send("timeless", None, key="a")
        producer.send("timeless", {"k": "b", "at": "2026-01-31T12:00:00Z"})
    first, gone, last = [r for batch in log.read("timeless") for r in batch.records()]
    assert first.value["at"] == first.timestamp
    assert gone.value is None
    assert last.value["at"] == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_rows_may_be_avro(log: Log) -> None:
    settings = TopicSettings(format="avro")
    log.create_topic("orders.avro", schema="id string, n int", key="id", settings=settings)
    with log.producer() as producer:
        producer.send("orders.avro", {"id": "a", "n": 1})
        producer.send("orders.avro", None, key="a")
        producer.send("orders.avro", {"id": "b"})
    assert values(log, "orders.avro") == [{"id": "a", "n": 1}, None, {"id": "b", "n": None}]
    with pytest.raises(InvalidSchema, match="Avro"):
        log.alter_topic("orders.avro", schema="id string, n int, more string")


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it stays open"])
@pytest.mark.parametrize("before", [None, 1], ids=["its first", "not its first"])
def test_a_transaction_of_a_group_that_is_about_to_end_is_waited_for(
    broker: ClusterState, log: Log, *, ends: bool, before: int | None
) -> None:
    """Kafka acknowledges a commit before its offsets are visible; here that takes a while."""
    topic = f"ending-{ends}-{before}"
    log.create_topic(topic, partitions=1)
    by_others(broker, topic, b"0", b"1")
    consumer = TheirConsumer({"bootstrap.servers": broker.servers, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    if before is not None:
        consumer.commit(offsets=[TopicPartition(topic, 0, before)], asynchronous=False)
    producer = KafkaProducer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], group)
    later = threading.Timer(0.3, producer.commit_transaction)
    if ends:
        later.start()
    (found,) = log.group(topic).lags
    assert found.committed == (2 if ends else before)
    assert found.records == (0 if ends else 2 - (before or 0))
    if ends:
        later.join()
    else:
        producer.abort_transaction()
    consumer.close()


def test_a_transaction_that_hides_what_a_producer_did_last_is_waited_for(
    broker: ClusterState, log: Log
) -> None:
    log.create_topic("hidden")
    with log.producer(id="hidden") as producer:
        producer.append("hidden", pa.table({"value": ["1"]}))
    place = partition_of(b"hidden", PARTITIONS)
    other = KafkaProducer({"bootstrap.servers": broker.servers, "transactional.id": "hides"})
    other.init_transactions()
    other.begin_transaction()
    other.produce(FENCES, b"{}", b"other", place)
    assert other.flush(30) == 0
    with open_log(f"{broker.url}?timeout=2s") as impatient, pytest.raises(LogBusy, match="open"):
        impatient.producer(id="hidden")
    other.abort_transaction()
    with log.producer(id="hidden") as producer:
        assert producer.next_sequence == 1


@pytest.mark.slow
@pytest.mark.skipif(not processes.ROOT, reason="a small disk of its own needs root")
def test_a_broker_whose_disk_is_full_says_no_and_has_all_it_said_yes_to(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    if not processes.mounted(disk, "24m"):
        pytest.skip("this system does not let one mount a small disk")
    # Kafka reserves 10 MB for the index of each segment, unless configured otherwise.
    small = {"log.index.size.max.bytes": "4096"}
    acknowledged = 0
    try:
        with kafka.running(disk / "kafka", 1, **small) as cluster:
            url = f"{cluster.state().url}?timeout=5s"
            with open_log(url) as log, log.producer(id="p", acks="synced") as producer:
                log.create_topic("t", schema="n bigint, filler string")
                with pytest.raises((DiskFull, LogUnavailable)):
                    while acknowledged < 200:
                        producer.append("t", filling(acknowledged), sequence=acknowledged)
                        acknowledged += 1
            assert 0 < acknowledged < 200
            cluster.down()
            resize = ["mount", "-o", "remount,size=256m", str(disk)]
            subprocess.run(resize, check=True, capture_output=True)
            cluster.up()
            with open_log(url) as log, log.producer(id="p", acks="synced") as producer:
                assert producer.next_sequence in (acknowledged, acknowledged + 1)
                for number in range(producer.next_sequence, acknowledged + 3):
                    producer.append("t", filling(number), sequence=number)
                found = [row["n"] for row in values(log, "t")]
            assert found == [*range(10 * (acknowledged + 3))]
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def filling(number: int) -> pa.Table:
    """Ten rows of half a megabyte that hardly compress."""
    filler = [os.urandom(25_000).hex() for _ in range(10)]
    return pa.table({"n": range(10 * number, 10 * number + 10), "filler": filler})
