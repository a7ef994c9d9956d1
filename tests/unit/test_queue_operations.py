"""Queues as a whole: redrive, purge, seek, past states and retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.clock import VirtualClock
from headrace.errors import QueueExists, QueueFull
from headrace.log import EARLIEST, LATEST, Commit, Offset, Time
from headrace.log.file.log import FileLog
from headrace.log.file.queue.queues import FileQueues
from headrace.queue import NewMessage, create_queue, operations, purge, redrive, seek, state_at
from tests.unit.test_queue import clock, log, outcomes, queue_of, texts

__all__ = ["clock", "log"]


def test_dead_letters_are_redriven_by_reason_and_as_of_a_time(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 4)
    zero, one, two, three = queue.take(4)
    queue.reject(zero, reason="no such address")
    queue.reject(one, reason="mailbox full")
    clock.advance(timedelta(minutes=1))
    then = Time(clock.now())
    clock.advance(timedelta(minutes=1))
    queue.reject(two, reason="mailbox full")
    queue.accept(three)
    assert redrive(queue, reason="full", upto=then) == 1
    assert texts(queue.take(5)) == ["1"]
    assert redrive(queue, limit=1) == 1
    assert [(m.text, m.deliveries) for m in queue.take(5)] == [("0", 1)]
    assert redrive(queue) == 1
    assert redrive(queue) == 0
    assert outcomes(log)[-3:] == [(1, "redriven"), (0, "redriven"), (2, "redriven")]


def test_a_redrive_leaves_letters_that_are_dead_again_meanwhile(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(log, 5)
    queue.reject(*queue.take(5))
    commit = operations._commit_with
    times = []

    def and_reject(*given: Any) -> None:
        commit(*given)
        times.append(1)
        if len(times) < 20:
            queue.reject(*queue.take(5))

    monkeypatch.setattr(operations, "_commit_with", and_reject)
    monkeypatch.setattr(operations, "_AT_ONCE", 2)
    assert redrive(queue) == 5
    assert (len(times), queue.state().dead) == (3, 5)


def test_a_redriven_message_of_an_ordered_queue_takes_its_place_in_the_line(log: FileLog) -> None:
    queue = queue_of(log, ordered=True)
    queue.put_many(NewMessage(f"a{n}", key="a") for n in range(3))
    queue.reject(*queue.take(3))
    (second,) = queue.take(3)
    redrive(queue)
    assert queue.take(3) == []
    queue.accept(second)
    assert texts(queue.take(3)) == ["a0"]


def test_a_purged_queue_is_empty_and_its_workers_have_lost_their_leases(log: FileLog) -> None:
    queue = queue_of(log, 3)
    (held,) = queue.take()
    assert purge(queue) == 3
    assert queue.state().unfinished == 0
    assert queue.renew(held) == [held]
    queue.put("new")
    assert texts(queue.take(3)) == ["new"]


def test_a_queue_counts_seeks_and_purges_partitions_that_are_added(log: FileLog) -> None:
    queue = queue_of(log, max_messages=100)
    log.alter_topic("work", partitions=4)
    queue.put_many(NewMessage(str(n), key=str(n)) for n in range(13))
    assert queue.state().unfinished == state_at(queue, Commit(log.head())).waiting == 13
    with pytest.raises(QueueFull, match="13 unfinished"):
        queue.put_many([NewMessage("more")] * 88, timeout=timedelta(0))
    assert purge(queue) == 13
    assert queue.take(20) == []
    assert queue.state().unfinished == state_at(queue, Commit(log.head())).waiting == 0
    seek(queue, EARLIEST)
    assert len(queue.take(20)) == 13


def test_retention_keeps_messages_of_partitions_that_are_added(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log)
    log.alter_topic("work", settings={"retention": "1h", "segment_age": "1m"}, partitions=2)
    with log.producer() as producer:
        producer.send("work", "added", partition=1)
    clock.advance(timedelta(days=1))
    log.upkeep("work")
    assert texts(queue.take()) == ["added"]


def test_a_queue_that_is_sought_back_plays_its_history_again(log: FileLog) -> None:
    queue = queue_of(log, 3)
    queue.accept(*queue.take(2))
    seek(queue, Offset(1))
    assert texts(queue.take(5)) == ["1", "2"]
    seek(queue, EARLIEST)
    assert texts(queue.take(5)) == ["0", "1", "2"]


def test_the_state_of_a_queue_can_be_asked_for_at_any_past_commit(
    log: FileLog, clock: VirtualClock
) -> None:
    queue = queue_of(log, 1)
    seen = {}

    def look() -> None:
        state = queue.state()
        seen[log.head()] = (state.unfinished, state.dead)
        clock.advance(timedelta(milliseconds=1))

    look()
    queue.put_many(NewMessage(str(n)) for n in range(4))
    look()
    first, second, third = queue.take(3)
    queue.accept(first)
    look()
    queue.reject(second)
    look()
    queue.release(third)
    look()
    redrive(queue)
    look()
    purge(queue)
    look()
    seek(queue, Offset(3))
    look()
    past = {commit: state_at(queue, Commit(commit)) for commit in seen}
    assert {commit: (past.waiting, past.dead) for commit, past in past.items()} == seen
    by_time = {commit: state_at(queue, Time(log.commit_time(commit) + 1)) for commit in seen}
    assert {commit: (past.waiting, past.dead) for commit, past in by_time.items()} == seen


def test_who_comes_second_with_a_queues_name_changes_nothing(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(log, 3)
    queue.accept(*queue.take(2))
    monkeypatch.setattr(FileQueues, "all", lambda queues: [])  # as if both had looked at once
    with pytest.raises(QueueExists):
        create_queue(log, "work", start=LATEST)
    assert outcomes(log, but="") == [(0, "created"), (0, "accepted"), (1, "accepted")]
    assert state_at(queue, Commit(log.head())).waiting == queue.state().unfinished == 1


def test_a_queue_that_began_late_counts_from_there(log: FileLog) -> None:
    queue_of(log, 3)
    late = create_queue(log, "late", topic="work", start=Offset(2))
    assert state_at(late, Commit(log.head())).waiting == 1
    assert texts(late.take(5)) == ["2"]


def test_retention_keeps_messages_that_are_not_finished_and_says_so(
    log: FileLog, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = queue_of(log)
    log.alter_topic("work", settings={"retention": "1h", "segment_age": "1m"})
    for number in range(3):
        queue.put(str(number))
        clock.advance(timedelta(minutes=2))
    clock.advance(timedelta(days=1))
    (first,) = queue.take()
    queue.accept(first)
    log.upkeep("work")
    assert log.offset_at("work", 0, EARLIEST) == 1
    assert "retention keeps the records of partition 0 of topic 'work' from offset 1 on" in (
        caplog.text
    )
    clock.advance(timedelta(days=1))
    assert texts(queue.take(5)) == ["1", "2"]
