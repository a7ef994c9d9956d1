"""Transactions are all or nothing, over topics and a group's offsets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import (
    InvalidRecord,
    MemberFenced,
    MisusedHandle,
    TransactionTooLarge,
    UnknownTopic,
)
from headrace.log import Capability, Log
from headrace.log.file.log import FileLog
from headrace.log.roles import CommitMode
from tests.conformance.stage import LONG, Stage, needs, read, send, values


@pytest.fixture
def two(log: Log) -> Log:
    """Two topics, one of them with two partitions."""
    log.create_topic("a", partitions=2)
    log.create_topic("b")
    return log


def everything(log: Log) -> list[bytes]:
    return sorted(values(log, "a") + values(log, "b"))


def test_a_transaction_over_topics_is_visible_once_it_is_committed(two: Log) -> None:
    with two.producer() as producer:
        with producer.transaction() as transaction:
            transaction.send("a", b"1", partition=0)
            transaction.send("a", b"2", partition=1)
            transaction.append("b", pa.table({"value": ["3", "4"]}))
            assert everything(two) == []
        assert everything(two) == [b"1", b"2", b"3", b"4"]


def test_a_transaction_becomes_visible_at_one_moment(two: Log) -> None:
    with needs(two, Capability.NUMBERED_APPENDS, Capability.ATOMIC_VISIBILITY):
        before = two.head()
        with two.producer() as producer, producer.transaction() as transaction:
            for partition in (0, 1):
                transaction.send("a", b"x", partition=partition)
            transaction.send("b", b"y")
        assert two.head() == before + 1
        assert {r.commit for topic in "ab" for r in read(two, topic)} == {before + 1}


def test_an_aborted_transaction_is_never_seen(stage: Stage, two: Log) -> None:
    with two.producer() as producer:
        transaction = producer.transaction()
        transaction.send("a", b"lost")
        transaction.append("b", pa.table({"value": ["lost"]}))
        transaction.abort()
        producer.send("b", b"kept")
    assert everything(two) == [b"kept"]
    assert everything(stage.reopen()) == [b"kept"]


def test_an_error_in_the_block_aborts(two: Log) -> None:
    with two.producer() as producer:
        with pytest.raises(RuntimeError), producer.transaction() as transaction:
            transaction.send("a", b"lost")
            raise RuntimeError("no")
        with pytest.raises(UnknownTopic), producer.transaction() as transaction:
            transaction.send("a", b"lost")
            transaction.send("nope", b"lost")
        with pytest.raises(InvalidRecord), producer.transaction() as transaction:
            transaction.send("a", b"lost")
            transaction.append("b", pa.table({"vlaue": ["lost"]}))
        with producer.transaction() as transaction:
            transaction.send("a", b"kept")
    assert everything(two) == [b"kept"]


def test_a_transaction_comes_after_what_its_producer_sent_before(two: Log) -> None:
    with two.producer(linger=LONG) as producer:
        producer.send("b", b"1")
        with producer.transaction() as transaction:
            transaction.send("b", b"2")
        producer.send("b", b"3")
    assert values(two, "b") == [b"1", b"2", b"3"]


def test_a_transaction_knows_where_its_records_went(two: Log) -> None:
    with two.producer() as producer:
        transaction = producer.transaction()
        delivery = transaction.send("a", b"x", partition=1)
        with pytest.raises(MisusedHandle, match="not committed"):
            delivery.wait()
        receipt = transaction.commit()
        assert receipt is not None
        assert [(ack.topic, ack.partition, ack.first) for ack in receipt.acks] == [("a", 1, 0)]
        assert delivery.wait() == receipt
        transaction = producer.transaction()
        delivery = transaction.send("a", b"x")
        transaction.abort()
        with pytest.raises(MisusedHandle, match="aborted"):
            delivery.wait()


def test_a_transaction_that_is_over_takes_nothing_more(two: Log) -> None:
    with two.producer() as producer:
        for end in ("commit", "abort"):
            transaction = producer.transaction()
            transaction.send("a", b"x")
            getattr(transaction, end)()
            with pytest.raises(MisusedHandle, match="has ended"):
                transaction.send("a", b"y")
            with pytest.raises(MisusedHandle, match="has ended"):
                transaction.append("a", pa.table({"value": ["y"]}))
            with pytest.raises(MisusedHandle, match="has ended"):
                transaction.commit()
    assert everything(two) == [b"x"]


def test_a_transaction_with_nothing_in_it_commits_nothing(two: Log) -> None:
    with two.producer() as producer:
        assert producer.transaction().commit() is None
    with needs(two, Capability.NUMBERED_APPENDS):
        assert two.head() == 0


def test_a_transaction_that_is_too_large_is_refused_as_a_whole(two: Log) -> None:
    with two.producer(acks="written") as producer:
        with pytest.raises(TransactionTooLarge), producer.transaction() as transaction:
            for _ in range(100):
                transaction.send("a", bytes(1_000_000))
        with pytest.raises(TransactionTooLarge), producer.transaction() as transaction:
            transaction.send("b", b"small")
            transaction.append("a", pa.table({"value": [bytes(1_000_000)] * 40}))
        # Continuing after the failure does not help.
        transaction = producer.transaction()
        with pytest.raises(TransactionTooLarge):
            for _ in range(100):
                transaction.send("a", bytes(1_000_000))
        with pytest.raises(TransactionTooLarge):
            transaction.commit()
    assert everything(two) == []


def test_offsets_move_with_the_transaction_or_not_at_all(stage: Stage, two: Log) -> None:
    for number in range(4):
        send(two, "b", b"%d" % number)
    consumer = two.consumer("b", group="readers", commit="manual")
    with two.producer() as producer:
        assert len(consumer.poll(max_records=2)) == 2
        with pytest.raises(RuntimeError), producer.transaction() as transaction:
            transaction.send("a", b"lost")
            transaction.commit_offsets(consumer)
            raise RuntimeError("no")
        assert two.group("readers").lags[0].committed in (None, 0)
        consumer.rewind()
        records = consumer.poll(max_records=3)
        assert [record.value for record in records] == [b"0", b"1", b"2"]
        with producer.transaction() as transaction:
            transaction.send("a", b"kept")
            transaction.commit_offsets(consumer)
    assert two.group("readers").lags[0].committed == 3
    assert values(two, "a") == [b"kept"]


@pytest.mark.parametrize("mode", ["before", "after"])
def test_the_offsets_of_a_consumer_that_commits_by_itself_are_refused(
    two: Log, mode: CommitMode
) -> None:
    send(two, "b", b"0", b"1")
    consumer = two.consumer("b", group="readers", commit=mode)
    consumer.poll()
    with two.producer() as producer:
        transaction = producer.transaction()
        transaction.send("a", b"result")
        with pytest.raises(MisusedHandle, match='commit="manual"'):
            transaction.commit_offsets(consumer)
        transaction.abort()
    assert everything(two) == [b"0", b"1"]


def test_the_offsets_of_a_consumer_of_another_log_are_refused(two: Log, tmp_path: Path) -> None:
    with FileLog(tmp_path / "other") as other:
        other.create_topic("b")
        send(other, "b", b"0")
        consumer = other.consumer("b", group="readers", commit="manual")
        consumer.poll()
        with two.producer() as producer:
            transaction = producer.transaction()
            with pytest.raises(MisusedHandle, match="another log"):
                transaction.commit_offsets(consumer)
            transaction.abort()


def test_offsets_may_be_all_a_transaction_has(two: Log) -> None:
    send(two, "b", b"0", b"1")
    consumer = two.consumer("b", group="readers", commit="manual")
    consumer.poll()
    with two.producer() as producer:
        with producer.transaction() as transaction:
            transaction.commit_offsets(consumer)
        assert two.group("readers").lag == 0
        # Afterwards the producer works as before.
        producer.send("b", b"2")
    assert values(two, "b") == [b"0", b"1", b"2"]
    with needs(two, Capability.NUMBERED_APPENDS):
        assert two.head() == 2, "offsets alone are no commit of the log"


def test_offsets_are_those_polled_when_they_were_handed_over(two: Log) -> None:
    send(two, "b", b"0", b"1", b"2")
    consumer = two.consumer("b", group="readers", commit="manual")
    with two.producer() as producer, producer.transaction() as transaction:
        consumer.poll(max_records=2)
        transaction.commit_offsets(consumer)
        consumer.poll()  # for the next transaction
    assert two.group("readers").lags[0].committed == 2


def test_a_transaction_in_a_loop_over_records_covers_the_record_at_hand(two: Log) -> None:
    send(two, "b", b"0", b"1", b"2")
    for stop_after in (b"1", b"2"):
        with (
            two.consumer("b", group="readers", commit="manual") as consumer,
            two.producer() as producer,
        ):
            for record in consumer:
                with producer.transaction() as transaction:
                    transaction.send("a", record.value, partition=0)
                    transaction.commit_offsets(consumer)
                if record.value == stop_after:
                    break
    assert values(two, "a") == [b"0", b"1", b"2"]


@pytest.mark.silence
def test_the_offsets_of_a_zombie_fence_the_whole_transaction(stage: Stage, two: Log) -> None:
    send(two, "b", b"0", b"1")
    zombie = two.consumer("b", group="readers", commit="manual")
    assert len(zombie.poll()) == 2
    stage.miss(zombie)
    successor = stage.elsewhere().consumer("b", group="readers", commit="manual")
    assert len(successor.poll(max_records=1)) == 1
    with two.producer() as producer:
        with pytest.raises(MemberFenced), producer.transaction() as transaction:
            transaction.send("a", b"by a zombie")
            transaction.commit_offsets(zombie)
        with producer.transaction() as transaction:
            transaction.send("a", b"by the living")
            transaction.commit_offsets(successor)
    assert values(two, "a") == [b"by the living"]
    assert two.group("readers").lags[0].committed == 1


def test_results_from_a_partition_that_was_given_away_fence_the_whole_transaction(
    stage: Stage, two: Log
) -> None:
    for partition in (0, 1):
        send(two, "a", b"%d" % partition, partition=partition)
    first = two.consumer("a", group="readers", commit="manual")
    polled = first.poll()
    assert len(polled) == 2
    second = stage.elsewhere().consumer("a", group="readers", commit="manual")
    again = stage.settle(first, second)
    assert len(first.assignment) == len(second.assignment) == 1
    with two.producer() as producer:
        # It has results of both partitions, and one of those now belongs to the other member.
        with pytest.raises(MemberFenced), producer.transaction() as transaction:
            for record in polled:
                transaction.send("b", record.value)
            transaction.commit_offsets(first)
        first.rewind()
        for consumer, records in ((first, first.poll()), (second, again)):
            with producer.transaction() as transaction:
                for record in records:
                    transaction.send("b", record.value)
                transaction.commit_offsets(consumer)
    assert sorted(values(two, "b")) == [b"0", b"1"], "each once"


def test_a_reader_sees_all_of_a_transaction_or_nothing_at_every_commit(two: Log) -> None:
    with needs(two, Capability.NUMBERED_APPENDS, Capability.ATOMIC_VISIBILITY):
        with two.producer() as producer:
            for number in range(5):
                with producer.transaction() as transaction:
                    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                        transaction.send(topic, b"%d" % number, partition=partition)
                producer.append("b", pa.table({"value": ["between"]}))
        for commit in (c.number for c in two.commits("b", 0, 100)):
            cut = [
                [r.value for r in read(two, topic, partitions=[p]) if (r.commit or 0) <= commit]
                for topic, p in (("a", 0), ("a", 1), ("b", 0))
            ]
            whole = [value for value in cut[2] if value != b"between"]
            assert cut[0] == cut[1] == whole


def test_a_partition_that_left_with_uncommitted_records_fences_the_transaction(
    stage: Stage, two: Log
) -> None:
    for partition in (0, 1):
        send(two, "a", b"x", partition=partition)
    with (
        two.consumer("a", group="g", commit="manual") as consumer,
        two.producer() as producer,
    ):
        transaction = producer.transaction()
        for record in consumer.poll():
            transaction.send("b", record.value)
        with two.consumer("a", group="g", commit="manual") as other:
            again = stage.settle(consumer, other)
            assert len(consumer.assignment) == 1, "one of the partitions went to the other member"
            with pytest.raises(MemberFenced, match="not committed"):
                transaction.commit_offsets(consumer)
            transaction.abort()
            assert values(two, "b") == []
            assert [record.value for record in again] == [b"x"]
            consumer.rewind()
            with producer.transaction() as second:
                for record in consumer.poll():
                    second.send("b", record.value)
                second.commit_offsets(consumer)
        assert values(two, "b") == [b"x"]


def test_a_partition_that_left_with_its_offsets_committed_fences_no_transaction(
    stage: Stage, two: Log
) -> None:
    for partition in (0, 1):
        send(two, "a", b"x", partition=partition)
    with (
        two.consumer("a", group="g", commit="manual") as consumer,
        two.producer() as producer,
    ):
        with producer.transaction() as transaction:
            assert len(consumer.poll()) == 2
            transaction.commit_offsets(consumer)
        with two.consumer("a", group="g", commit="manual") as other:
            assert stage.settle(consumer, other) == []
            assert len(consumer.assignment) == 1, "one of the partitions went to the other member"
            with producer.transaction() as transaction:
                transaction.commit_offsets(consumer)
