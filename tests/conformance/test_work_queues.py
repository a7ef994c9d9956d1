"""What a queue does on every log: hand out, accept, release, reject, and try again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.errors import LeaseLost, MisusedHandle, QueueExists, UnknownQueue, Unsupported
from headrace.log import Log, open_log
from headrace.queue import (
    Message,
    NewMessage,
    QueueCapability,
    QueueSettings,
    Router,
    Send,
    Settlement,
    WorkQueue,
    create_queue,
    open_queue,
    topic,
)
from headrace.servers.kafka.state import ClusterState
from tests.waiting import left, wait_until

LEASE = timedelta(minutes=1)
SHORT = timedelta(seconds=1)
_NUMBERS = itertools.count()


@pytest.fixture(params=["file", pytest.param("kafka", marks=pytest.mark.service)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    url = f"file:{tmp_path}/log"
    if request.param == "kafka":
        broker: ClusterState = request.getfixturevalue("broker")
        url = f"kafka://{broker.servers}"
    with open_log(url) as opened:
        yield opened


@pytest.fixture
def kafka(broker: ClusterState) -> Iterator[Log]:
    with open_log(f"kafka://{broker.servers}") as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """A name that no other test has on the shared broker."""
    return f"queue-{next(_NUMBERS)}"


def create(
    log: Log, name: str, count: int = 0, lease: timedelta = LEASE, **settings: Any
) -> WorkQueue:
    queue = create_queue(log, name, settings=QueueSettings(lease=lease, **settings))
    queue.put_many(NewMessage(str(number)) for number in range(count))
    return queue


def take(queue: WorkQueue, count: int) -> list[Message]:
    """So many messages, however many each call returns."""
    found: list[Message] = []
    while len(found) < count:
        more = queue.take(count - len(found), timeout=timedelta(seconds=left()))
        assert more, f"{count} messages were expected, and {len(found)} came"
        found += more
    return found


def accept_in_time(queue: WorkQueue, message: Message) -> None:
    """Accept a message whose lease is short: on a busy machine it may end first."""
    while True:
        try:
            return queue.accept(message)
        except LeaseLost:
            (message,) = take(queue, 1)


def texts(messages: list[Message]) -> list[str]:
    return sorted(message.text for message in messages)


def letters(log: Log, name: str) -> list[tuple[str, str]]:
    rows = [row for batch in log.read(f"{name}.dead") for row in batch.data.to_pylist()]
    return [(row["row"], row["reason"]) for row in rows]


def test_each_message_is_handed_out_once_and_is_gone_when_it_is_accepted(
    log: Log, name: str
) -> None:
    with create(log, name, 5) as queue:
        found = take(queue, 5)
        assert texts(found) == ["0", "1", "2", "3", "4"]
        assert {message.deliveries for message in found} == {1}
        assert len({message.id for message in found}) == 5
        queue.accept(*found)
    with open_queue(log, name) as queue:
        queue.put("next")
        assert texts(take(queue, 1)) == ["next"]


def test_a_released_message_comes_again_with_a_higher_count_and_token(log: Log, name: str) -> None:
    with create(log, name, 2) as queue:
        first, second = take(queue, 2)
        queue.settle([Settlement(second)])
        queue.release(first)
        (again,) = take(queue, 1)
        assert (again.id, again.value) == (first.id, first.value)
        assert again.deliveries == 2
        assert again.token > first.token
        queue.accept(again)


def test_a_rejected_message_is_a_dead_letter_with_its_reason(log: Log, name: str) -> None:
    with create(log, name, 2) as queue:
        found = take(queue, 2)
        queue.reject(found[0], reason="no such address")
        queue.accept(found[1])
        queue.put("next")
        assert texts(take(queue, 1)) == ["next"]
    assert letters(log, name) == [(found[0].text, "no such address")]


def test_a_message_of_a_dead_worker_comes_again_and_the_late_worker_is_told(
    log: Log, name: str
) -> None:
    with create(log, name, 1, SHORT) as slow, open_queue(log, name) as quick:
        (first,) = take(slow, 1)
        (again,) = take(quick, 1)
        assert (again.id, again.deliveries) == (first.id, 2)
        with pytest.raises(LeaseLost, match=first.id):
            slow.accept(first)
        accept_in_time(quick, again)


def test_a_message_whose_workers_all_die_is_a_dead_letter(log: Log, name: str) -> None:
    with (
        create(log, name, 1, SHORT, max_deliveries=2) as first,
        open_queue(log, name) as second,
        open_queue(log, name) as third,
    ):
        take(first, 1)
        assert take(second, 1)[0].deliveries == 2
        third.put("next")
        (following,) = take(third, 1)
        accept_in_time(third, following)
        # Reading on is what finds the one that was handed out too often.
        wait_until(lambda: third.take(timeout=SHORT / 10) or letters(log, name))
    ((text, reason),) = letters(log, name)
    assert (following.text, text) == ("next", "0")
    assert reason.startswith("its lease ended 2 times")


def test_a_message_is_settled_once(log: Log, name: str) -> None:
    with create(log, name, 1) as queue:
        (message,) = take(queue, 1)
        queue.accept(message)
        with pytest.raises(LeaseLost):
            queue.release(message)


def test_a_message_that_is_settled_twice_in_one_call_is_refused(log: Log, name: str) -> None:
    with create(log, name, 1) as queue:
        (message,) = take(queue, 1)
        with pytest.raises(MisusedHandle, match=message.id):
            queue.settle([message.accepted(), message.rejected("bad")])
        queue.accept(message)


def test_keys_headers_and_objects_come_as_they_were_put(log: Log, name: str) -> None:
    with create(log, name) as queue:
        queue.put({"to": "ann"}, key="user-1", headers=[("tenant", b"blue")])
        (message,) = take(queue, 1)
        assert (message.key, message.json()) == (b"user-1", {"to": "ann"})
        assert message.header("tenant") == b"blue"
        queue.accept(message)


def test_several_queues_over_one_topic_get_every_message(log: Log, name: str) -> None:
    other = f"{name}-other"
    with create(log, name, 3) as queue, create_queue(log, other, topic=name) as beside:
        assert texts(take(beside, 3)) == texts(take(queue, 3)) == ["0", "1", "2"]


def test_a_router_puts_a_message_into_all_bound_queues(log: Log, name: str) -> None:
    other = f"{name}-other"
    with (
        create(log, name) as queue,
        create(log, other) as beside,
        Router(log, [topic(name, "#"), topic(other, "*.placed")]) as router,
    ):
        assert router.put("paid", route="order.paid") == [name]
        assert router.put("placed", route="order.placed") == [name, other]
        assert texts(take(beside, 1)) == ["placed"]
        assert texts(take(queue, 2)) == ["paid", "placed"]


def test_a_queue_is_created_once(log: Log, name: str) -> None:
    create(log, name).close()
    with pytest.raises(QueueExists, match=name):
        create(log, name)


def test_an_unknown_queue_is_refused(log: Log, name: str) -> None:
    with pytest.raises(UnknownQueue, match=name):
        open_queue(log, name)


@pytest.mark.service
@pytest.mark.parametrize(
    ("settings", "capability"),
    [
        ({"ordered": True}, QueueCapability.KEY_ORDER),
        ({"key_concurrency": 2}, QueueCapability.KEY_LIMITS),
        ({"key_rate": 1.5}, QueueCapability.KEY_LIMITS),
        ({"priorities": True}, QueueCapability.PRIORITY),
        ({"max_messages": 10}, QueueCapability.BOUND),
        ({"backoff": timedelta(seconds=9)}, QueueCapability.DELAY),
        ({"delivery": "at-most-once"}, QueueCapability.AT_MOST_ONCE),
    ],
)
def test_kafka_refuses_the_settings_that_a_share_group_lacks_by_name(
    kafka: Log, name: str, settings: dict[str, Any], capability: QueueCapability
) -> None:
    with pytest.raises(Unsupported, match=capability.value) as refused:
        create_queue(kafka, name, settings=QueueSettings(**settings))
    assert refused.value.details["capability"] == capability.name
    assert name not in [topic.name for topic in kafka.topics()]


@pytest.mark.service
def test_kafka_refuses_the_calls_that_a_share_group_lacks_and_loses_nothing(
    kafka: Log, name: str
) -> None:
    with create(kafka, name, 1) as queue:
        assert queue.capabilities == set()
        for refused in (NewMessage("x", delay=LEASE), NewMessage("x", priority=1)):
            with pytest.raises(Unsupported):
                queue.put_many([refused])
        (message,) = take(queue, 1)
        with pytest.raises(Unsupported, match="results and its follow-ups in one commit"):
            queue.accept(message, sends=[Send("results", "x")])
        with pytest.raises(Unsupported, match="delay"):
            queue.release(message, delay=LEASE)
        with pytest.raises(Unsupported, match="renewed"):
            queue.renew(message)
        with pytest.raises(Unsupported, match="counts"):
            queue.state()
        queue.accept(message)


@pytest.mark.service
def test_a_record_on_kafka_that_is_no_row_is_a_dead_letter(
    kafka: Log, broker: ClusterState, name: str
) -> None:
    kafka.create_topic(name, schema="n BIGINT")
    with create(kafka, name) as queue:
        foreign = Producer({"bootstrap.servers": broker.servers})
        foreign.produce(name, b"no row", partition=0)
        foreign.flush()
        queue.put({"n": 1})
        (message,) = take(queue, 1)
        assert message.json() == {"n": 1}
        queue.accept(message)
    ((text, reason),) = letters(kafka, name)
    assert text == "no row"
    assert "does not match its schema" in reason
