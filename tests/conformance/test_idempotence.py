"""Idempotent producers: ids, epochs and sequence numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import (
    InvalidName,
    MisusedHandle,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionTooLarge,
)
from headrace.log import Capability, Log
from headrace.log.partitioner import partition_of
from tests.conformance.stage import LONG, Stage, needs, values


def rows(*names: str) -> pa.Table:
    return pa.table({"value": list(names)})


@pytest.fixture
def clicks(log: Log) -> Log:
    log.create_topic("clicks")
    return log


def test_a_retry_after_a_lost_answer_adds_nothing(clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id="loader") as producer:
        first = producer.append("clicks", rows("a", "b"), sequence=0)
        again = producer.append("clicks", rows("a", "b"), sequence=0)
        assert not first.duplicate
        assert again.duplicate
        assert (again.commit, again.timestamp, again.acks) == (
            first.commit,
            first.timestamp,
            first.acks,
        )
        assert values(clicks, "clicks") == [b"a", b"b"]


def test_a_repeat_is_answered_with_the_first_receipt(clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id="loader") as producer:
        producer.append("clicks", rows("a"), sequence=0)
        second = producer.append("clicks", rows("b", "c"), sequence=1)
        again = producer.append("clicks", rows("b", "c"), sequence=1)
        assert (again.commit, again.acks) == (second.commit, second.acks)


def test_a_retry_by_a_restarted_process_adds_nothing(stage: Stage, clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES):
        with clicks.producer(id="loader") as producer:
            producer.append("clicks", rows("a"), sequence=0)
            producer.append("clicks", rows("b"), sequence=1)
        with stage.reopen().producer(id="loader") as producer:
            assert producer.next_sequence == 2
            for sequence, name in ((0, "a"), (1, "b"), (2, "c")):
                receipt = producer.append("clicks", rows(name), sequence=sequence)
                assert receipt.duplicate == (sequence < 2)
        assert values(stage.log, "clicks") == [b"a", b"b", b"c"]


def test_a_gap_in_the_sequence_is_refused(clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id="loader") as producer:
        producer.append("clicks", rows("a"), sequence=0)
        with pytest.raises(OutOfOrderSequence, match="sequence 2") as caught:
            producer.append("clicks", rows("c"), sequence=2)
        assert caught.value.details["expected"] == 1
        producer.append("clicks", rows("b"), sequence=1)
        producer.append("clicks", rows("c"), sequence=2)
        assert values(clicks, "clicks") == [b"a", b"b", b"c"]


def test_a_sequence_number_may_stand_for_no_rows(clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id="loader") as producer:
        schema = pa.schema([("value", pa.binary())])
        for sequence, chunks in enumerate((0, 1)):
            batch = pa.RecordBatch.from_pylist([], schema)
            empty = pa.Table.from_batches([batch] * chunks, schema)
            assert not producer.append("clicks", empty, sequence=sequence).duplicate
            assert producer.append("clicks", empty, sequence=sequence).duplicate
        producer.append("clicks", rows("a"), sequence=2)
        assert values(clicks, "clicks") == [b"a"]
        with needs(clicks, Capability.NUMBERED_APPENDS):
            assert clicks.head() == 1


def test_every_commit_of_a_producer_takes_the_next_number(clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id="loader", linger=LONG) as producer:
        assert producer.next_sequence == 0
        producer.append("clicks", rows("a"))
        assert producer.next_sequence == 1
        producer.send("clicks", b"b")
        producer.flush()
        assert producer.next_sequence == 2
        with producer.transaction() as transaction:
            transaction.send("clicks", b"c")
        assert producer.next_sequence == 3
        with pytest.raises(RuntimeError), producer.transaction() as transaction:
            transaction.send("clicks", b"lost")
            raise RuntimeError("no")
        assert producer.next_sequence == 3
        producer.append("clicks", rows("d"), sequence=3)
        assert values(clicks, "clicks") == [b"a", b"b", b"c", b"d"]


def test_a_sequence_number_is_for_one_commit(clicks: Log) -> None:
    big = pa.table({"value": [bytes(1_000_000)] * 40})
    producer = clicks.producer(id="loader", acks="written")
    with needs(clicks, Capability.SEQUENCES):
        with pytest.raises(TransactionTooLarge):
            producer.append("clicks", big, sequence=0)
        assert producer.next_sequence == 0
    producer.close()
    assert values(clicks, "clicks") == []


def test_a_number_that_a_producer_chose_itself_is_not_for_its_caller(clicks: Log) -> None:
    with clicks.producer(id="loader") as producer:
        producer.append("clicks", rows("a"))
        with needs(clicks, Capability.SEQUENCES), pytest.raises(MisusedHandle, match="numbered"):
            producer.append("clicks", rows("b"), sequence=0)
    assert values(clicks, "clicks") == [b"a"]


def test_a_newer_producer_fences_the_older_one(stage: Stage, clicks: Log) -> None:
    old = clicks.producer(id="loader", linger=LONG)
    old.append("clicks", rows("old"))
    old.send("clicks", b"too late")
    new = stage.elsewhere().producer(id="loader")
    with pytest.raises(ProducerFenced, match="loader") as caught:
        old.flush()
    assert caught.value.details["producer"] == "loader"
    with pytest.raises(ProducerFenced):
        old.append("clicks", rows("too late"))
    with pytest.raises(ProducerFenced), old.transaction() as transaction:
        transaction.send("clicks", b"too late")
    new.append("clicks", rows("new"))
    assert values(clicks, "clicks") == [b"old", b"new"]
    old.close()
    new.close()


def test_a_fenced_producer_cannot_even_repeat_itself(stage: Stage, clicks: Log) -> None:
    with needs(clicks, Capability.SEQUENCES):
        old = clicks.producer(id="loader")
        old.append("clicks", rows("a"), sequence=0)
        with stage.elsewhere().producer(id="loader") as new:
            with pytest.raises(ProducerFenced):
                old.append("clicks", rows("a"), sequence=0)
            assert new.append("clicks", rows("a"), sequence=0).duplicate
        assert values(clicks, "clicks") == [b"a"]


def test_a_fence_stands_across_a_restart(stage: Stage, clicks: Log) -> None:
    old = stage.elsewhere().producer(id="loader")
    clicks.producer(id="loader").close()
    stage.reopen()
    with pytest.raises(ProducerFenced):
        old.append("clicks", rows("too late"))
    assert values(stage.log, "clicks") == []


def test_producers_without_an_id_are_strangers_to_each_other(clicks: Log) -> None:
    with clicks.producer() as one, clicks.producer() as two:
        assert one.id != two.id
        one.append("clicks", rows("a"))
        two.append("clicks", rows("b"))
        one.append("clicks", rows("c"))
    assert values(clicks, "clicks") == [b"a", b"b", b"c"]


def test_producers_with_different_ids_do_not_fence_each_other(clicks: Log) -> None:
    with clicks.producer(id="one") as one, clicks.producer(id="two") as two:
        for producer in (one, two, one, two):
            producer.append("clicks", rows(producer.id))
    assert values(clicks, "clicks") == [b"one", b"two", b"one", b"two"]


def test_producers_do_not_take_each_others_numbers(clicks: Log) -> None:
    # On Kafka, the sequence numbers of these two are in one partition.
    one, two = "loader-0", "loader-8"
    assert partition_of(one.encode(), 16) == partition_of(two.encode(), 16)
    for id, commits in ((one, 3), (two, 1)):
        with clicks.producer(id=id) as producer:
            for _ in range(commits):
                producer.append("clicks", rows(id))
    with needs(clicks, Capability.SEQUENCES), clicks.producer(id=one) as producer:
        assert producer.next_sequence == 3


@pytest.mark.parametrize("id", ["", "a/b", "a b", "x" * 250])
def test_a_producer_id_is_a_name(clicks: Log, id: str) -> None:
    with pytest.raises(InvalidName):
        clicks.producer(id=id)
