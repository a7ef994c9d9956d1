"""Effects of changed topics and a closed log on running readers and writers."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pyarrow as pa
import pytest

from headrace.errors import InvalidSetting, MisusedHandle, OutOfOrderSequence, UnknownTopic
from headrace.log import Capability, Log
from tests.conformance.stage import LONG, SESSION, Stage, needs, send, values


def test_a_running_consumer_sees_a_new_column(log: Log) -> None:
    with needs(log, Capability.TYPED_TOPICS):
        log.create_topic("t", schema="k string")
        for group in (None, "readers"):
            with log.consumer("t", group=group) as consumer, log.producer() as producer:
                producer.send("t", {"k": "a"})
                producer.flush()
                consumer.poll()
                if group is None:
                    log.alter_topic("t", schema="k string, extra int")
                producer.send("t", {"k": "b", "extra": 1})
                producer.flush()
                assert consumer.poll()[-1].value == {"k": "b", "extra": 1}


def test_a_consumer_without_a_group_finds_new_partitions(log: Log) -> None:
    log.create_topic("t")
    with log.consumer("t") as consumer:
        assert consumer.poll() == []
        log.alter_topic("t", partitions=2)
        send(log, "t", b"x", partition=1)
        assert [record.value for record in consumer.poll()] == [b"x"]


def test_deleting_one_topic_leaves_a_member_its_other_topics(stage: Stage) -> None:
    log = stage.log
    for name in ("x", "y"):
        log.create_topic(name)
        send(log, name, b"1")
    for instance in (None, "static"):
        group = f"group-{instance}"
        with log.consumer("y", "x", group=group, instance=instance, session=SESSION) as consumer:
            assert len(consumer.poll()) == 2
            log.delete_topic("x")
            send(log, "y", b"2")
            found = []
            for _ in range(4):
                try:
                    found += [record.value for record in consumer.poll()]
                except UnknownTopic:
                    continue
            assert found == [b"2"]
        lags = [(lag.topic, lag.records) for lag in log.group(group).lags]
        assert lags == [("y", 0)]
        log.create_topic("x")
        send(log, "x", b"1")
        log.delete_topic("y")
        log.create_topic("y")
        send(log, "y", b"1")


@pytest.mark.silence
def test_partitions_of_a_dead_member_go_to_a_static_member_that_returns(stage: Stage) -> None:
    log = stage.log
    log.create_topic("t", partitions=4)
    static = log.consumer("t", group="g", instance="s", session=timedelta(minutes=20))
    dead = log.consumer("t", group="g", session=SESSION)
    stage.settle(static, dead)
    assert len(static.assignment) == len(dead.assignment) == 2
    stage.miss(dead)
    with log.consumer("t", group="g", instance="s", session=timedelta(minutes=20)) as back:
        stage.settle(back)
        assert len(back.assignment) == 4


def test_a_topic_that_is_gone_does_not_take_the_records_of_others_with_it(log: Log) -> None:
    log.create_topic("x")
    log.create_topic("y")
    producer = log.producer(linger=LONG)
    producer.send("y", b"kept")
    delivery = producer.send("x", b"lost")
    log.delete_topic("x")
    with pytest.raises(UnknownTopic):
        producer.flush()
    with pytest.raises(UnknownTopic):
        delivery.wait()
    producer.close()
    assert values(log, "y") == [b"kept"]


def test_a_number_of_the_callers_is_never_taken_for_one_of_the_producers(log: Log) -> None:
    log.create_topic("t")
    batch = pa.table({"value": [b"mine"]})
    with needs(log, Capability.SEQUENCES):
        with log.producer(id="p", linger=LONG) as producer:
            number = producer.next_sequence
            producer.send("t", b"sent")
            with pytest.raises(MisusedHandle, match="numbered itself"):
                producer.append("t", batch, sequence=number)
            producer.flush()
            with pytest.raises(MisusedHandle, match="numbered itself"):
                producer.append("t", batch, sequence=number)
            producer.append("t", batch, sequence=producer.next_sequence)
            with pytest.raises(InvalidSetting):
                producer.append("t", batch, sequence=-1)
            with pytest.raises(OutOfOrderSequence):
                producer.append("t", batch, sequence=producer.next_sequence + 1)
        assert values(log, "t") == [b"sent", b"mine"]


def test_the_last_receipt_is_known_to_the_next_process(log: Log) -> None:
    log.create_topic("t")
    with needs(log, Capability.SEQUENCES):
        with log.producer(id="p") as producer:
            assert producer.last_receipt is None
            first = producer.append("t", pa.table({"value": [b"x", b"y"]}))
        with log.producer(id="p") as producer:
            assert producer.last_receipt is not None
            assert producer.last_receipt.commit == first.commit
            assert producer.last_receipt.records == 2


def test_a_log_that_is_closed_closes_what_was_opened_on_it(stage: Stage) -> None:
    log = stage.log
    log.create_topic("t")
    producer = log.producer(linger=LONG)
    producer.send("t", b"x")
    consumer = log.consumer("t", group="g")
    again = stage.reopen()
    assert values(again, "t") == [b"x"]
    assert again.group("g").members == ()
    with pytest.raises(MisusedHandle):
        producer.send("t", b"y")
    with pytest.raises(MisusedHandle):
        consumer.poll()


def test_a_poll_that_was_interrupted_loses_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("t", partitions=2)
    for partition in (0, 1):
        send(log, "t", b"x", partition=partition)
    consumer = log.consumer("t", group="g")
    assert len(consumer.poll(max_records=1)) == 1

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.positions._read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
    assert len(consumer.poll()) == 1
    consumer.close()
    assert log.group("g").lag == 0


@pytest.mark.parametrize("records", [0, -1])
def test_a_poll_for_no_records_is_refused(log: Log, records: int) -> None:
    log.create_topic("t")
    with log.consumer("t") as consumer, pytest.raises(InvalidSetting):
        consumer.poll(max_records=records)


def test_a_session_without_length_is_refused(log: Log) -> None:
    log.create_topic("t")
    with pytest.raises(InvalidSetting):
        log.consumer("t", group="g", session=timedelta(0))


def test_what_was_polled_and_not_handled_comes_again_after_the_log_was_closed(
    stage: Stage,
) -> None:
    log = stage.log
    log.create_topic("t")
    send(log, "t", b"0", b"1")
    consumer = log.consumer("t", group="g")
    assert len(consumer.poll()) == 2
    again = stage.reopen()  # as when `with open_log(...)` ends after an error
    with again.consumer("t", group="g") as consumer:
        assert [record.value for record in consumer.poll()] == [b"0", b"1"]


def test_nothing_sent_without_an_error_is_lost_when_another_thread_closes(log: Log) -> None:
    log.create_topic("t")
    producer = log.producer(linger=LONG)
    sent = [0, 0]
    enough = threading.Event()

    def send_until_refused(mine: int) -> None:
        with contextlib.suppress(MisusedHandle):
            while True:
                producer.send("t", b"x", key=b"k")
                sent[mine] += 1
                if sent[mine] == 300:
                    enough.set()

    threads = [threading.Thread(target=send_until_refused, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    enough.wait()
    producer.close()
    for thread in threads:
        thread.join()
    assert len(values(log, "t")) == sum(sent)


def test_rewinding_inside_a_loop_over_records_begins_again(log: Log) -> None:
    log.create_topic("t")
    log.create_topic("out")
    send(log, "t", b"0", b"1", b"2", b"3")
    seen = []
    with log.consumer("t", group="g", commit="manual") as consumer, log.producer() as producer:
        for record in consumer:
            seen.append(record.value)
            if seen == [b"0", b"1"]:
                consumer.rewind()
                continue
            if len(seen) > 2:
                with producer.transaction() as transaction:
                    transaction.send("out", record.value)
                    transaction.commit_offsets(consumer)
            if record.value == b"3":
                break
    assert seen == [b"0", b"1", b"0", b"1", b"2", b"3"]
    assert values(log, "out") == [b"0", b"1", b"2", b"3"]


def test_a_topic_made_again_takes_records_again(log: Log) -> None:
    log.create_topic("t")
    producer = log.producer(linger=LONG)
    producer.send("t", b"1")
    producer.flush()
    log.delete_topic("t")
    producer.send("t", b"2")
    with pytest.raises(UnknownTopic):
        producer.flush()
    log.create_topic("t")
    producer.send("t", b"3")
    producer.close()
    assert values(log, "t") == [b"3"]


def test_a_delivery_does_not_tell_what_became_of_others(log: Log) -> None:
    log.create_topic("x")
    log.create_topic("y")
    producer = log.producer(linger=LONG, batch_bytes=1)
    producer.send("y", b"0").wait()
    producer.send("x", b"0").wait()
    log.delete_topic("x")
    with pytest.raises(UnknownTopic):
        producer.send("x", b"lost")
    assert producer.send("y", b"1").wait().records == 1
    producer.close()
    assert values(log, "y") == [b"0", b"1"]
