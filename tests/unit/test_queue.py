"""Queues: messages are handed out one at a time, under leases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import VirtualClock
from headrace.errors import (
    InvalidSetting,
    LeaseLost,
    MisusedHandle,
    QueueExists,
    QueueFull,
    UnknownQueue,
)
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from headrace.log.file.queue.index import Index, Unread
from headrace.log.file.queue.queues import FileQueues
from headrace.log.queueing import (
    DUE_HEADER,
    HIGHEST_PRIORITY,
    LONGEST_DELAY,
    PRIORITY_HEADER,
    Acquired,
    Settled,
)
from headrace.queue import (
    Message,
    NewMessage,
    Outcome,
    QueueSettings,
    Send,
    WorkQueue,
    alter_queue,
    create_queue,
    delete_queue,
    open_queue,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", clock=clock) as opened:
        yield opened


def queue_of(log: FileLog, count: int = 0, **settings: Any) -> WorkQueue:
    queue = create_queue(log, "work", settings=QueueSettings(**settings))
    queue.put_many(NewMessage(str(number)) for number in range(count))
    return queue


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def outcomes(log: FileLog, but: str = "created") -> list[tuple[int, str]]:
    rows = [row for batch in log.read("work.journal") for row in batch.data.to_pylist()]
    return [(row["offset"], row["outcome"]) for row in rows if row["outcome"] != but]


def test_messages_are_handed_out_in_order_and_each_to_one_worker(log: FileLog) -> None:
    queue_of(log, 5)
    one, other = open_queue(log, "work", worker="one"), open_queue(log, "work", worker="other")
    assert texts(one.take(2)) == ["0", "1"]
    assert texts(other.take(2)) == ["2", "3"]
    assert texts(one.take(2)) == ["4"]
    assert one.take(2) == []


def test_a_message_is_seen_on_a_disk_with_one_connection(tmp_path: Path) -> None:
    disk = Disk()
    disk.exclusive = True
    with FileLog(tmp_path / "log", disk=disk) as log:
        queue = queue_of(log)
        assert queue.take() == []
        queue.put("0")
        assert texts(queue.take()) == ["0"]


def test_an_accepted_message_is_gone_and_its_sends_are_in_the_same_commit(log: FileLog) -> None:
    queue = queue_of(log, 1)
    log.create_topic("results")
    queue.accept(*queue.take(), sends=[Send("results", "done")])
    assert queue.state().unfinished == 0
    (result,) = log.read("results")
    _, line = log.read("work.journal")
    assert result.commit == line.commit
    assert outcomes(log) == [(0, "accepted")]


def test_a_released_message_is_handed_out_again_and_its_deliveries_are_counted(
    log: FileLog,
) -> None:
    queue = queue_of(log, 2)
    (first,) = queue.take()
    queue.release(first)
    (again,) = queue.take()
    assert (again.text, again.deliveries, again.id) == ("0", 2, first.id)
    assert again.token > first.token


def test_a_released_message_waits_for_its_delay(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, 1)
    queue.release(*queue.take(), delay=timedelta(seconds=5))
    assert queue.take() == []
    assert queue.state().delayed == 1
    clock.advance(timedelta(seconds=5))
    assert texts(queue.take()) == ["0"]


def test_a_rejected_message_is_a_dead_letter_with_its_reason(log: FileLog) -> None:
    queue = queue_of(log, 1)
    queue.reject(*queue.take(), reason="no such address")
    assert queue.state().dead == 1
    (batch,) = log.read("work.dead")
    (letter,) = batch.data.to_pylist()
    assert (letter["topic"], letter["offset"], letter["reason"], letter["row"]) == (
        "work", 0, "no such address", "0",
    )  # fmt: skip


def test_a_message_whose_lease_has_ended_is_handed_out_again(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 1)
    (late,) = queue.take()
    clock.advance(timedelta(seconds=30))
    (again,) = queue.take()
    assert again.deliveries == 2
    with pytest.raises(LeaseLost, match=late.id):
        queue.accept(late)
    assert outcomes(log) == []
    queue.accept(again)


def test_a_wall_clock_that_is_set_ends_no_lease(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, 1)
    (message,) = queue.take()
    clock.set(timedelta(days=1))
    assert queue.take() == []
    queue.accept(message)


def test_a_lease_of_another_boot_has_ended(
    tmp_path: Path, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(log, 1)
    queue.take()
    log.close()
    monkeypatch.setattr("headrace.log.file.disk.Disk.boot", lambda disk: "another")
    with FileLog(log.folder, clock=VirtualClock()) as opened:
        assert texts(open_queue(opened, "work").take()) == ["0"]


def test_a_renewed_lease_begins_anew(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, 1)
    (message,) = queue.take()
    clock.advance(timedelta(seconds=20))
    assert queue.renew(message) == []
    clock.advance(timedelta(seconds=20))
    assert queue.take() == []
    queue.accept(message)
    assert queue.renew(message) == [message]


def test_a_lost_lease_does_not_keep_others_from_being_settled(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 2)
    late, fine = queue.take(2)
    clock.advance(timedelta(seconds=20))
    queue.renew(fine)
    clock.advance(timedelta(seconds=20))
    queue.take()
    with pytest.raises(LeaseLost):
        queue.accept(late, fine)
    assert outcomes(log) == [(1, "accepted")]


def test_a_message_that_is_settled_twice_in_one_call_is_refused_and_nothing_is_settled(
    log: FileLog,
) -> None:
    queue = queue_of(log, 2)
    log.create_topic("results")
    one, other = queue.take(2)
    send = Send("results", "done")
    for twice in (one.accepted(send), one.rejected("bad"), one.released()):
        with pytest.raises(MisusedHandle, match=f"{one.id} has 2 settlements"):
            queue.settle([one.accepted(send), other.accepted(), twice])
    assert outcomes(log) == []
    assert log.topic("results").records == 0
    queue.accept(one, other)
    assert queue.state().unfinished == 0


def test_a_part_that_settles_a_message_twice_fails_its_commit(log: FileLog) -> None:
    queue = queue_of(log, 1)
    (message,) = queue.take()
    settled = Settled(message.partition, message.offset, message.token, Outcome.ACCEPTED)
    with pytest.raises(LeaseLost), log.producer() as producer, producer.transaction() as both:
        both.attach(log.queues().settling(queue.row, [settled, settled]))
    queue.accept(message)


def test_a_worker_may_settle_a_stale_delivery_beside_the_later_one_that_it_has(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 1)
    (stale,) = queue.take()
    clock.advance(timedelta(seconds=30))
    (fresh,) = queue.take()
    assert queue.renew(stale, fresh) == [stale]
    assert queue.settle([stale.rejected("slow"), fresh.accepted()]) == [stale]
    assert outcomes(log) == [(0, "accepted")]


def test_a_message_whose_leases_end_too_often_is_a_dead_letter(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 1, max_deliveries=2)
    for _ in range(2):
        assert texts(queue.take()) == ["0"]
        clock.advance(timedelta(seconds=30))
    assert queue.take() == []
    assert queue.state().dead == 1


def test_a_message_at_most_once_is_gone_before_it_is_handed_out(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 1, delivery="at-most-once")
    (message,) = queue.take()
    assert outcomes(log) == [(0, "accepted")]
    clock.advance(timedelta(days=1))
    assert queue.take() == []
    queue.accept(message)


def test_a_delayed_message_waits_and_others_go_first(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log)
    queue.put("later", delay=timedelta(seconds=10))
    queue.put("now")
    assert texts(queue.take(2)) == ["now"]
    clock.advance(timedelta(seconds=10))
    assert texts(queue.take(2)) == ["later"]


def test_a_higher_priority_is_handed_out_first(log: FileLog) -> None:
    queue = queue_of(log, priorities=True)
    queue.put_many(NewMessage(str(n), priority=n % 3) for n in range(6))
    assert texts(queue.take(3)) == ["2", "5", "1"]
    queue.put("urgent", priority=9)
    assert texts(queue.take(2)) == ["urgent", "4"]


@pytest.fixture
def busy(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A producer that puts a message whenever a worker has looked, up to 50; the looks so far."""
    looks: list[int] = []
    look = Index.unread

    def unread(index: Index, *given: Any) -> list[Unread]:
        found = look(index, *given)
        looks.append(len(looks))
        if len(looks) <= 50:
            open_queue(log, "work").put(f"new {len(looks)}")
        return found

    monkeypatch.setattr(Index, "unread", unread)
    return looks


def test_priorities_wait_for_no_message_that_is_put_after_the_look(
    log: FileLog, busy: list[int]
) -> None:
    queue = queue_of(log, priorities=True)
    queue.put_many([NewMessage("low"), NewMessage("high", priority=1)])
    (high,) = queue.take()
    assert (high.text, len(busy)) == ("high", 1)
    _, (low,) = queue.exchange([high.accepted()], 1)
    assert (low.text, len(busy)) == ("low", 2)


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
def test_a_backlog_is_looked_at_in_turns_while_there_is_time(
    log: FileLog, monkeypatch: pytest.MonkeyPatch, delay: timedelta | None
) -> None:
    monkeypatch.setattr("headrace.log.file.queue.index.LEAST", 10)
    monkeypatch.setattr("headrace.log.file.queue.index.MOST", 10)
    queue = queue_of(log, priorities=True)
    queue.put_many(NewMessage(str(n), delay=delay) for n in range(100))
    queue.put("urgent", priority=9)
    assert queue.take() == []
    assert queue.state().unread == 91
    assert texts(queue.take(timeout=timedelta(minutes=1))) == ["urgent"]


def test_producers_that_are_faster_than_the_looks_hold_up_no_priority(
    log: FileLog, busy: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.file.queue.index.MOST", 1)
    queue = queue_of(log, priorities=True)
    for number in range(3):
        queue.put(str(number))
    assert texts(queue.take(timeout=timedelta(minutes=1))) == ["0"]
    assert len(busy) <= 5


@pytest.mark.parametrize("header", [PRIORITY_HEADER, DUE_HEADER])
@pytest.mark.parametrize("value", [b"--5", b"9" * 19, b"-" + b"9" * 40, b"high", b"", b"\xb2"])
def test_a_header_that_is_no_number_holds_up_nothing(
    log: FileLog, header: str, value: bytes
) -> None:
    queue = queue_of(log, priorities=True)
    queue.put("odd", headers=[(header, value)])
    queue.put("fine", priority=1)
    assert texts(queue.take(2)) == ["fine", "odd"]


@pytest.mark.parametrize(
    "impossible",
    [
        {"priority": 10**20},
        {"priority": -(10**20)},
        {"delay": timedelta.max},
        {"delay": timedelta(seconds=-1)},
    ],
)
def test_an_impossible_message_is_refused_and_not_put(
    log: FileLog, impossible: dict[str, Any]
) -> None:
    queue = queue_of(log, priorities=True)
    with pytest.raises(InvalidSetting):
        queue.put("odd", **impossible)
    queue.put("last", priority=-HIGHEST_PRIORITY)
    queue.put("first", priority=HIGHEST_PRIORITY)
    queue.put("later", delay=LONGEST_DELAY)
    assert texts(queue.take(5)) == ["first", "last"]
    assert queue.state().unfinished == 3


def test_a_message_cannot_be_released_for_longer_than_there_are_times(log: FileLog) -> None:
    queue = queue_of(log, 1)
    (message,) = queue.take()
    with pytest.raises(InvalidSetting, match="cannot wait"):
        queue.release(message, delay=timedelta.max)
    queue.release(message, delay=LONGEST_DELAY)
    assert queue.state().delayed == 1


def test_an_ordered_queue_hands_out_one_message_of_a_key_at_a_time(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, ordered=True)
    queue.put_many(NewMessage(f"{key}{n}", key=key) for n in range(3) for key in "ab")
    first, other = queue.take(10)
    assert texts([first, other]) == ["a0", "b0"]
    queue.accept(first)
    (second,) = queue.take(10)
    assert second.text == "a1"
    queue.release(second, delay=timedelta(seconds=1))
    assert queue.take(10) == []  # a1 holds up its key
    clock.advance(timedelta(seconds=1))
    assert texts(queue.take(10)) == ["a1"]


def test_a_key_that_moves_to_a_partition_that_is_added_keeps_its_order(log: FileLog) -> None:
    queue = create_queue(log, "work", partitions=2, settings=QueueSettings(ordered=True))
    queue.put("other", key="0")  # in partition 0, where "1" is later
    queue.put("first", key="1")
    log.alter_topic("work", partitions=3)
    queue.put("second", key="1")
    assert texts(queue.take(5)) == ["other", "first"]


def test_at_most_so_many_messages_of_a_key_are_acquired(log: FileLog) -> None:
    queue = queue_of(log, key_concurrency=2)
    queue.put_many(NewMessage(f"a{n}", key="a") for n in range(4))
    queue.put("b0", key="b")
    taken = queue.take(10)
    assert texts(taken) == ["a0", "a1", "b0"]
    queue.release(taken[0], delay=timedelta(hours=1))
    assert texts(queue.take(10)) == ["a2"]
    queue.accept(taken[1], taken[2])
    assert texts(queue.take(10)) == ["a3"]


def test_messages_of_a_key_are_handed_out_at_its_rate(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, key_rate=2)
    queue.put_many(NewMessage(f"a{n}", key="a") for n in range(3))
    queue.put("b0", key="b")
    assert texts(queue.take(10)) == ["a0", "b0"]
    assert queue.take(10) == []
    clock.advance(timedelta(milliseconds=500))
    assert texts(queue.take(10)) == ["a1"]
    clock.advance(timedelta(seconds=10))
    assert texts(queue.take(10)) == ["a2"]  # a pause saves up nothing


@pytest.mark.parametrize("again", [False, True])
def test_a_clock_that_is_set_back_holds_keys_by_their_rate_and_no_longer(
    log: FileLog, clock: VirtualClock, again: bool, request: pytest.FixtureRequest
) -> None:
    queue = queue_of(log, key_rate=2, ordered=True)
    queue.put_many(NewMessage(f"{key}{n}", key=key) for n in range(2) for key in "ab")
    a, b = queue.take(10)
    queue.accept(a)
    queue.release(b, delay=timedelta(hours=3))
    clock.set(-timedelta(hours=2))
    if again:  # a process that starts after that
        other = FileLog(log.folder, clock=clock)
        request.addfinalizer(other.close)
        queue = open_queue(other, "work")
    assert queue.take(10) == []
    clock.advance(timedelta(milliseconds=500))
    assert texts(queue.take(10)) == ["a1"]
    clock.advance(timedelta(hours=4))
    assert texts(queue.take(10)) == ["a1"]  # its lease has ended, and b waits by the wall clock
    clock.advance(timedelta(hours=1))
    assert "b0" in texts(queue.take(10))


def test_a_rate_that_is_raised_frees_its_keys(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, key_rate=0.001, lease=timedelta(hours=1))
    queue.put_many(NewMessage(f"a{n}", key="a") for n in range(2))
    assert texts(queue.take(10)) == ["a0"]
    alter_queue(log, "work", {"key_rate": "10"})
    clock.advance(timedelta(seconds=1))
    assert texts(queue.take(10)) == ["a1"]


def test_a_queue_forgets_the_rates_of_keys_that_are_done(
    log: FileLog, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(log, key_rate=10)

    def finish() -> int:
        queue.put_many(NewMessage("x", key=str(n)) for n in range(20))
        queue.accept(*queue.take(100))
        clock.advance(timedelta(seconds=1))
        with log._catalog.reading() as db:
            return int(db.execute("SELECT count(*) FROM queue_key").get)

    assert finish() == 20
    log.upkeep("work")
    with log._catalog.reading() as db:
        assert db.execute("SELECT count(*) FROM queue_key").get == 0
    monkeypatch.setattr("headrace.log.file.queue.leases._HAND_OUTS", 3)
    assert [finish() for _ in range(2)] == [20, 20]
    queue.put("y", key="y")
    queue.take()
    with log._catalog.reading() as db:
        assert db.execute("SELECT count(*) FROM queue_key").get <= 21


def test_a_worker_keeps_the_lease_that_it_knows(log: FileLog, clock: VirtualClock) -> None:
    queue = queue_of(log, 2)
    alter_queue(log, "work", {"lease": "1s"})
    changed = open_queue(log, "work")
    old, new = *queue.take(), *changed.take()
    clock.advance(timedelta(seconds=20))
    assert texts(changed.take(2)) == ["1"]
    assert queue.renew(old) == []
    clock.advance(timedelta(seconds=20))
    assert changed.renew(new) == [new]
    queue.accept(old)


def test_a_full_queue_refuses(log: FileLog) -> None:
    queue = queue_of(log, 3, max_messages=3, overflow="refuse")
    with pytest.raises(QueueFull, match="3 unfinished messages of at most 3"):
        queue.put("3")
    queue.accept(*queue.take())
    queue.put("3")
    assert queue.state().unfinished == 3


def test_a_full_queue_blocks_until_its_time_is_over(log: FileLog) -> None:
    queue = queue_of(log, 3, max_messages=3)
    with pytest.raises(QueueFull):
        queue.put("3", timeout=timedelta(seconds=1))


def test_a_full_queue_drops_the_oldest_and_says_so(log: FileLog) -> None:
    queue = queue_of(log, 3, max_messages=3, overflow="drop")
    (held,) = queue.take()
    queue.put_many([NewMessage("3"), NewMessage("4")])
    assert outcomes(log) == [(1, "dropped"), (2, "dropped")]
    assert queue.state().dead == 2
    assert texts(queue.take(5)) == ["3", "4"]
    queue.accept(held)


def test_a_full_queue_drops_messages_that_wait_for_their_key_or_their_time(log: FileLog) -> None:
    queue = queue_of(log, ordered=True, max_messages=4, overflow="drop")
    queue.put("later", delay=timedelta(hours=1))
    queue.put_many(NewMessage(f"a{n}", key="a") for n in range(3))
    (held,) = queue.take()
    queue.put("b0", key="b")
    queue.put("b1", key="b")
    assert outcomes(log) == [(0, "dropped"), (2, "dropped")]
    queue.accept(held)
    assert texts(queue.take(5)) == ["a2", "b0"]


def test_a_full_queue_drops_the_lowest_priorities(log: FileLog) -> None:
    queue = queue_of(log, priorities=True, max_messages=4, overflow="drop")
    queue.put_many(NewMessage(str(n), priority=n) for n in (2, 0, 1, 3))
    queue.put_many([NewMessage("4", priority=4)] * 3)
    assert texts(queue.take(5)) == ["4", "4", "4", "3"]


def test_what_a_worker_has_taken_meanwhile_is_not_dropped(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(log, 3, max_messages=3, overflow="drop")
    oldest = FileQueues.oldest
    taken: list[Message] = []

    def and_take(queues: FileQueues, *given: Any) -> list[Acquired]:
        found = oldest(queues, *given)
        if not taken:
            taken.extend(queue.take())
        return found

    monkeypatch.setattr(FileQueues, "oldest", and_take)
    queue.put_many([NewMessage("3"), NewMessage("4")])
    assert outcomes(log) == [(1, "dropped"), (2, "dropped")]
    queue.accept(*taken)
    assert queue.state().acquired == 0
    assert texts(queue.take(5)) == ["3", "4"]


def test_a_full_queue_of_dead_workers_drops_when_their_leases_end(log: FileLog) -> None:
    queue = queue_of(log, 2, max_messages=2, overflow="drop")
    queue.take(2)
    with pytest.raises(QueueFull):
        queue.put("2", timeout=timedelta(seconds=10))
    queue.put("2")
    assert texts(queue.take(5)) == ["1", "2"]


def test_queues_over_one_topic_get_every_message_each(log: FileLog) -> None:
    queue = queue_of(log, 2)
    other = create_queue(log, "audit", topic="work")
    queue.accept(*queue.take(2))
    assert texts(other.take(5)) == ["0", "1"]


def test_partitions_that_are_added_are_handed_out_too(log: FileLog) -> None:
    queue = queue_of(log, 1)
    log.alter_topic("work", partitions=3)
    with log.producer() as producer:
        for partition in (1, 2):
            producer.send("work", str(partition), partition=partition)
    assert sorted(texts(queue.take(5))) == ["0", "1", "2"]


def test_queues_are_found_changed_and_deleted_by_name(log: FileLog) -> None:
    queue_of(log, 1)
    with pytest.raises(QueueExists):
        create_queue(log, "work")
    with pytest.raises(UnknownQueue, match="no queue 'works'"):
        open_queue(log, "works")
    assert alter_queue(log, "work", {"lease": "5m"}).settings.lease == timedelta(minutes=5)
    with pytest.raises(InvalidSetting, match="has messages"):
        alter_queue(log, "work", {"ordered": "true"})
    delete_queue(log, "work")
    with pytest.raises(UnknownQueue):
        open_queue(log, "work")
    assert [topic.name for topic in log.topics()] == ["work", "work.dead", "work.journal"]


def test_a_topic_that_is_deleted_takes_its_queues_along(log: FileLog) -> None:
    queue_of(log, 1)
    log.delete_topic("work")
    with pytest.raises(UnknownQueue):
        open_queue(log, "work")


@pytest.mark.parametrize(
    "settings",
    [
        {"overflow": "explode"},
        {"max_deliveries": 0},
        {"lease": timedelta(days=2)},
        {"key_rate": 1e-30},
        {"key_rate": float("nan")},
        {"key_rate": float("inf")},
        {"ordered": True, "key_concurrency": 2},
        {"ordered": True, "priorities": True},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        QueueSettings(**settings)


def test_settings_survive_their_text() -> None:
    settings = QueueSettings(lease=timedelta(minutes=2), ordered=True, key_rate=0.5)
    assert QueueSettings().change(settings.to_text()) == settings
    with pytest.raises(InvalidSetting, match="no queue setting"):
        settings.change({"leese": "1m"})
