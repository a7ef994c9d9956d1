"""Workers run handlers on messages, and settle them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import InvalidSetting
from headrace.log import Log, open_log
from headrace.queue import (
    Message,
    NewMessage,
    QueueSettings,
    Send,
    Settlement,
    Worker,
    WorkQueue,
    create_queue,
    work,
)
from tests.waiting import left

AT_ONCE = QueueSettings(backoff=timedelta(0), max_deliveries=3)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"file:{tmp_path}/log") as opened:
        yield opened


def queue_of(log: Log, count: int, settings: QueueSettings = AT_ONCE) -> WorkQueue:
    queue = create_queue(log, "work", settings=settings)
    queue.put_many(NewMessage(str(number), key=number % 5) for number in range(count))
    return queue


def rows(log: Log, topic: str) -> list[dict[str, object]]:
    return [row for batch in log.read(topic) for row in batch.data.to_pylist()]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_message_is_handled_once_and_its_result_is_written(
    log: Log, concurrency: int
) -> None:
    queue = queue_of(log, 300)
    log.create_topic("results")

    def double(message: Message) -> Send:
        return Send("results", str(2 * int(message.text)))

    report = work(queue, double, concurrency=concurrency, until_empty=True)
    assert (report.accepted, report.failed, report.lost) == (300, 0, 0)
    results = sorted(int(str(row["value"], "ascii")) for row in rows(log, "results"))  # type: ignore[call-overload]
    assert results == [2 * number for number in range(300)]


def test_coroutines_are_handled_many_at_a_time(log: Log) -> None:
    queue = queue_of(log, 20)
    together, most = 0, 0

    async def handle(message: Message) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1

    assert work(queue, handle, concurrency=8, until_empty=True).accepted == 20
    assert most == 8


def test_a_handler_that_fails_is_tried_again_and_then_its_message_is_dead(log: Log) -> None:
    queue = queue_of(log, 3)
    tries: list[str] = []

    def handle(message: Message) -> None:
        tries.append(message.text)
        if message.text == "1":
            raise ValueError("no such address")

    report = work(queue, handle, until_empty=True)
    assert (report.accepted, report.failed, report.rejected) == (2, 2, 1)
    assert tries.count("1") == 3
    (letter,) = rows(log, "work.dead")
    assert letter["reason"] == "failed 3 times, the last time: ValueError: no such address"


def test_a_handler_may_settle_its_message_itself(log: Log) -> None:
    queue = queue_of(log, 2)

    def handle(message: Message) -> Settlement:
        if message.text == "0":
            return message.rejected("not for us")
        return message.released() if message.deliveries == 1 else message.accepted()

    report = work(queue, handle, until_empty=True)
    assert (report.accepted, report.failed, report.rejected) == (1, 1, 1)


def test_a_result_that_cannot_be_written_fails_its_message_alone(log: Log) -> None:
    queue = queue_of(log, 5)

    def handle(message: Message) -> Send | None:
        return Send("nowhere", b"") if message.text == "3" else None

    report = work(queue, handle, until_empty=True)
    assert (report.accepted, report.rejected) == (4, 1)
    (letter,) = rows(log, "work.dead")
    assert "no topic 'nowhere'" in str(letter["reason"])


def test_an_answer_that_means_nothing_fails_its_message(log: Log) -> None:
    queue = queue_of(log, 1)
    assert work(queue, lambda message: ["done"], until_empty=True).rejected == 1  # type: ignore[arg-type]


def test_a_handler_that_settles_another_message_fails_its_own(log: Log) -> None:
    queue = queue_of(log, 2)
    seen: list[Message] = []

    def handle(message: Message) -> Settlement:
        seen.append(message)
        return seen[0].accepted()

    report = work(queue, handle, until_empty=True)
    assert (report.accepted, report.rejected, report.lost) == (1, 1, 0)
    (letter,) = rows(log, "work.dead")
    assert f"settled message {seen[0].id}" in str(letter["reason"])


def test_an_impossible_delay_fails_its_message_and_not_the_worker(log: Log) -> None:
    queue = queue_of(log, 1)
    report = work(queue, lambda message: message.released(timedelta.max), until_empty=True)
    assert report.rejected == 1


def test_long_work_has_its_lease_renewed(log: Log) -> None:
    queue = queue_of(log, 1, QueueSettings(lease=timedelta(seconds=9)))
    queues = log.queues()

    def handle(message: Message) -> None:
        (before,) = queues.leases(queue.row, 1)
        while True:
            (now,) = queues.leases(queue.row, 1)
            if now.left > before.left:
                return
            before = now
            threading.Event().wait(0.05)

    report = work(queue, handle, until_empty=True)
    assert (report.accepted, report.lost) == (1, 0)


def test_work_longer_than_allowed_goes_to_another_worker(log: Log) -> None:
    queue = queue_of(log, 1, QueueSettings(lease=timedelta(milliseconds=200)))
    again = threading.Event()

    def stuck(message: Message) -> None:
        if message.deliveries == 1:
            again.wait(left())
        else:
            again.set()

    worker = Worker(queue, stuck, concurrency=2, longest=timedelta(milliseconds=100))
    report = worker.run(until_empty=True)
    assert report.accepted == 1
    assert report.lost >= 1


def test_a_worker_that_is_stopped_finishes_what_it_began_and_gives_the_rest_back(
    log: Log,
) -> None:
    queue = queue_of(log, 10)
    begun = threading.Event()
    go_on = threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        go_on.wait(left())

    worker = Worker(queue, handle, prefetch=5)
    running = threading.Thread(target=worker.run)
    running.start()
    begun.wait(left())
    worker.stop()
    go_on.set()
    running.join()
    assert worker.report.accepted >= 1
    state = queue.state()
    assert (state.acquired, state.unfinished) == (0, 10 - worker.report.accepted)
    assert {message.deliveries for message in queue.take(10)} == {1}


def test_messages_of_a_key_are_handled_in_order_by_many_workers(log: Log) -> None:
    queue = queue_of(log, 200, QueueSettings(ordered=True))
    handled: dict[bytes, list[int]] = {}

    def handle(message: Message) -> None:
        handled.setdefault(message.key, []).append(int(message.text))

    assert work(queue, handle, concurrency=8, until_empty=True).accepted == 200
    assert all(numbers == sorted(numbers) for numbers in handled.values())
    assert sum(map(len, handled.values())) == 200


def test_a_worker_needs_a_hand_to_work_with(log: Log) -> None:
    with pytest.raises(InvalidSetting, match="concurrency of 0"):
        Worker(queue_of(log, 0), print, concurrency=0)
