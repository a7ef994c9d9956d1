"""A router puts each message into all queues that are bound to it, in one commit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.clock import VirtualClock
from headrace.errors import InvalidSetting, QueueFull, UnknownQueue, Unroutable
from headrace.log.file.log import FileLog
from headrace.queue import (
    NewMessage,
    QueueSettings,
    Router,
    create_queue,
    direct,
    headers,
    open_queue,
    topic,
)

BINDINGS = [
    topic("payment", "order.*.placed"),
    topic("audit", "order.#"),
    direct("alarm", "fire"),
    headers("vip", {"tier": "gold"}),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", clock=VirtualClock()) as opened:
        for name in ("payment", "audit", "alarm", "vip", "rest"):
            create_queue(opened, name).close()
        yield opened


def texts(log: FileLog, name: str) -> list[str]:
    return [message.text for message in open_queue(log, name).take(100)]


def test_a_message_is_put_into_every_bound_queue_in_one_commit(log: FileLog) -> None:
    with Router(log, BINDINGS) as router:
        before = log.head()
        found = router.put("1", route="order.eu.placed", headers=[("tier", b"gold")])
        assert found == ["payment", "audit", "vip"]
        assert log.head() == before + 1
        assert router.put("2", route="order.eu.paid") == ["audit"]
        assert router.put("3", route="fire") == ["alarm"]
    assert texts(log, "payment") == ["1"]
    assert texts(log, "audit") == ["1", "2"]
    assert texts(log, "alarm") == ["3"]
    assert texts(log, "vip") == ["1"]


def test_many_messages_are_put_in_one_commit_each_where_it_belongs(log: FileLog) -> None:
    with Router(log, BINDINGS) as router:
        before = log.head()
        routed = router.put_many(
            (route, NewMessage(route)) for route in ("fire", "order", "order.us.placed")
        )
        assert routed == [["alarm"], ["audit"], ["payment", "audit"]]
        assert log.head() == before + 1
    assert texts(log, "audit") == ["order", "order.us.placed"]


def test_an_unroutable_message_is_refused_and_nothing_with_it_is_put(log: FileLog) -> None:
    with Router(log, BINDINGS) as router:
        before = log.head()
        with pytest.raises(Unroutable, match="'nowhere'"):
            router.put_many([("fire", NewMessage("1")), ("nowhere", NewMessage("2"))])
        assert log.head() == before
    assert texts(log, "alarm") == []


def test_an_unroutable_message_goes_to_the_queue_for_such(log: FileLog) -> None:
    with Router(log, BINDINGS, unrouted="rest") as router:
        assert router.put("lost", route="nowhere") == ["rest"]
    assert texts(log, "rest") == ["lost"]


def test_nothing_is_put_while_one_of_the_queues_is_full(log: FileLog) -> None:
    full = QueueSettings(max_messages=1, overflow="refuse")
    create_queue(log, "small", settings=full).put("0")
    with Router(log, [topic("audit", "#"), topic("small", "#")]) as router:
        with pytest.raises(QueueFull, match="small"):
            router.put("1")
        assert texts(log, "audit") == []
        small = open_queue(log, "small")
        small.accept(*small.take())
        assert router.put("2") == ["audit", "small"]
    assert texts(log, "audit") == texts(log, "small") == ["2"]


def test_a_full_queue_drops_its_own_oldest_message(log: FileLog) -> None:
    for name, overflow in (("small", "drop"), ("blocking", "block")):
        settings = QueueSettings(max_messages=2, overflow=overflow)
        create_queue(log, name, settings=settings)
    with Router(log, [topic("blocking", "#"), topic("small", "#")]) as router:
        router.put("1")
        router.put("2")
        with pytest.raises(QueueFull, match="blocking"):
            router.put("3", timeout=timedelta(seconds=1))
        blocking = open_queue(log, "blocking")
        blocking.accept(*blocking.take(2))
        router.put("3")
    assert texts(log, "blocking") == ["3"]
    assert texts(log, "small") == ["2", "3"]


def test_queues_over_one_topic_cannot_be_bound_apart(log: FileLog) -> None:
    create_queue(log, "copy", topic="audit")
    with pytest.raises(InvalidSetting, match="'audit' and 'copy' are both over topic 'audit'"):
        Router(log, [topic("audit", "a"), topic("copy", "b")])


def test_a_binding_of_no_queue_is_refused(log: FileLog) -> None:
    with pytest.raises(UnknownQueue, match="nobody"):
        Router(log, [direct("nobody", "x")])
