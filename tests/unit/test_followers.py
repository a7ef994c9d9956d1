"""Each store has a follower of its own: it fails, waits and stops alone."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.application.stores import followers_of
from headrace.cli.main import app as command
from headrace.clock import SystemClock
from headrace.errors import StoreError
from headrace.store import followers
from headrace.store.contract import StoredView, StoreTable
from headrace.store.followers import Followers, FollowerThread
from headrace.store.lock import only_one
from headrace.store.status import StoreStatus, lock_of, note, statuses
from tests.conformance.memory_store import MemoryStore
from tests.view_writer import ViewWriter
from tests.waiting import wait_until

CLOCK = SystemClock()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hr.Log]:
    with hr.open_log(f"file:{tmp_path}/data") as log:
        yield log


@pytest.fixture
def writer(log: hr.Log) -> Iterator[ViewWriter]:
    with ViewWriter(log) as writer:
        yield writer


def thread(log: hr.Log, store: hr.Store) -> FollowerThread:
    return FollowerThread(log, "shop", "orders", store, CLOCK)


def following(log: hr.Log, *stores: hr.Store) -> Followers:
    made = Followers([thread(log, store) for store in stores], CLOCK)
    made.start()
    return made


def order(id: int, note: str = "") -> dict[str, Any]:
    return {"id": id, "note": note}


def keys_in(store: MemoryStore) -> list[str]:
    live = store.shelf.live.get(("shop", "orders"))
    return sorted(live.rows) if live is not None else []


@dataclass(frozen=True)
class Broken(MemoryStore):
    """A store with a mistake in it, as a user may write one."""

    def live(self, view: StoredView) -> StoreTable:
        raise ZeroDivisionError("a mistake")


def test_stores_follow_while_the_view_changes(log: hr.Log, writer: ViewWriter) -> None:
    one, other = MemoryStore(), MemoryStore(name="other")
    with following(log, one, other) as running:
        writer.write(order(1), order(2))
        wait_until(lambda: len(keys_in(one)) == len(keys_in(other)) == 2)
        writer.write(order(3), deleted=[{"id": 1}])
        wait_until(running.caught_up)
    assert keys_in(one) == keys_in(other) == ['{"id": 2}', '{"id": 3}']


def test_a_store_that_is_down_is_tried_again_and_others_go_on(
    log: hr.Log, writer: ViewWriter
) -> None:
    down, up = MemoryStore(name="down"), MemoryStore(name="up")
    down.shelf.down = True
    with following(log, down, up) as running:
        writer.write(order(1))
        wait_until(lambda: keys_in(up))
        wait_until(lambda: running.statuses()[0].state == "failing")
        assert running.statuses()[0].error == "The memory is down"
        assert not running.caught_up()
        down.shelf.down = False
        wait_until(running.caught_up)
        assert running.statuses()[0].state == "following"
        assert running.statuses()[0].error == ""
    assert keys_in(down) == keys_in(up)


def test_pauses_between_attempts_grow_up_to_a_limit(
    log: hr.Log, writer: ViewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.shelf.down = True
    made = thread(log, store)
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 9:
            made.ask_to_stop()
        return False

    monkeypatch.setattr(made._stop, "wait", wait)
    writer.write(order(1))
    made.start()
    made.join()
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_mistake_in_a_store_is_told_and_stops_nobody(log: hr.Log, writer: ViewWriter) -> None:
    broken, good = Broken(name="broken"), MemoryStore()
    writer.write(order(1))
    with following(log, broken, good) as running:
        wait_until(lambda: keys_in(good))
        wait_until(lambda: running.statuses()[0].error)
        with pytest.raises(StoreError, match="ZeroDivisionError: a mistake"):
            wait_until(running.caught_up)


def test_a_store_that_stays_down_is_given_up_after_some_time(
    log: hr.Log, writer: ViewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.shelf.down = True
    writer.write(order(1))
    with following(log, store) as running:
        wait_until(lambda: running.statuses()[0].state == "failing")
        assert not running.caught_up()
        monkeypatch.setattr(followers, "PATIENCE", 0)
        with pytest.raises(StoreError, match="store memory: of view 'orders' is not") as given_up:
            running.caught_up()
        assert "headrace stores run" in given_up.value.hint


def test_a_store_that_is_given_up_ends_no_wait_for_others(
    log: hr.Log, writer: ViewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "PATIENCE", 0)
    down, later = MemoryStore(name="down"), MemoryStore(name="later")
    down.shelf.down = True
    writer.write(order(1))
    first, second = thread(log, down), thread(log, later)
    with Followers([first, second], CLOCK) as running:
        first.start()
        wait_until(lambda: first.status.state == "failing")
        # The second one has not begun, so it does not show the change either.
        monkeypatch.setattr(FollowerThread, "caught_up", property(lambda self: False))
        assert not running.caught_up()
        first.ask_to_stop()
        first.join()


def test_a_store_is_followed_though_its_state_cannot_be_noted(
    log: hr.Log,
    writer: ViewWriter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, full = MemoryStore(), True

    def note_if_there_is_room(url: str, status: StoreStatus) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        note(url, status)

    monkeypatch.setattr(followers, "note", note_if_there_is_room)
    store.shelf.down = True
    writer.write(order(1))
    with following(log, store) as running:
        wait_until(lambda: running.statuses()[0].state == "failing")
        store.shelf.down = False
        wait_until(running.caught_up)
        assert caplog.text.count("No space left on device") == 1
        full = False
        wait_until(lambda: [status.lag for status in statuses(log, CLOCK.now())] == [0])


def test_only_one_process_follows_a_store(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(order(1))
    lock = lock_of(log.home, StoreStatus("shop", "orders", store.address))
    with following(log, store) as first:
        wait_until(first.caught_up)
    with only_one(lock, "held by the test", ""), following(log, store) as second:
        wait_until(lambda: second.statuses()[0].error)
        assert "Another process follows" in second.statuses()[0].error
        # What the other one has noted counts.
        wait_until(second.caught_up)
        writer.write(order(2))
        assert keys_in(store) == ['{"id": 1}']


def test_the_state_of_a_store_can_be_seen_without_its_client(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(order(1))
    with following(log, store) as running:
        wait_until(running.caught_up)
        wait_until(lambda: [s.lag for s in statuses(log, CLOCK.now())] == [0])
    (stopped,) = statuses(log, CLOCK.now())
    assert (stopped.state, stopped.lag, stopped.behind) == ("stopped", 0, None)
    writer.write(order(2), order(3))
    (behind,) = statuses(log, CLOCK.now())
    assert behind.lag == 2
    assert behind.behind is not None and behind.behind > 0


PROGRAM = """
import headrace as hr

app = hr.App("shop", log="{log}")
orders = app.captured("shop.main.orders", schema="id bigint, note string", key="id")
app.view("orders", orders, store="search:")
app.view("plain", orders)
"""


def test_a_store_that_is_no_longer_declared_is_listed_as_long_as_somebody_follows_it(
    log: hr.Log, writer: ViewWriter
) -> None:
    store, old = MemoryStore(), StoreStatus("shop", "orders", "redis://cache")
    app = hr.App("shop")
    orders = app.topic("orders", schema="id bigint, at timestamp", event_time="at")
    app.view("orders", orders, key="id", store=store)
    for status in (old, StoreStatus("shop", "orders", store.address)):
        note(log.home, status)

    def listed() -> list[str]:
        followers_of(app, log).close()
        return [status.store for status in statuses(log, 0)]

    with only_one(lock_of(log.home, old), "It runs", ""):
        assert listed() == [store.address, old.store]
    assert listed() == [store.address]


def test_commands_follow_list_and_rebuild_stores(
    log: hr.Log, writer: ViewWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stored_shop.py").write_text(PROGRAM.format(log=log.url))
    monkeypatch.chdir(tmp_path)
    writer.write(order(1, "blue shoe"), order(2, "red shoe"))

    def run(*words: str) -> Any:
        return CliRunner().invoke(command, [*words, "--json"])

    here = ("stores", "list", "--log", log.url)
    assert "There are no stores" in CliRunner().invoke(command, here).output
    done = run("stores", "run", "stored_shop.py:app", "--until-caught-up")
    assert done.exit_code == 0, done.output
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["view"], line["store"], line["lag"]) == ("orders", "search:", 0)
    writer.write(order(3, "green shoe"))
    (line,) = map(json.loads, run(*here).stdout.splitlines())
    assert (line["state"], line["lag"]) == ("stopped", 1)
    assert "search:" in CliRunner().invoke(command, here).output
    done = run("stores", "rebuild", "stored_shop.py:app", "orders", "--yes")
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["built"], line["lag"]) == ("it was asked for", 0)
    found = run("search", "orders", "shoe", "--log", log.url)
    assert len(found.stdout.splitlines()) == 3
    writer.write(order(4, "black shoe"))
    done = run("stores", "run", "stored_shop.py:app", "--store", "search", "--until-caught-up")
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["store"], line["lag"]) == ("search:", 0)
    wrong = run("stores", "run", "stored_shop.py:app", "--store", "redis")
    assert wrong.exit_code == 2
    assert "There are: search:" in wrong.output
    wrong = run("stores", "rebuild", "stored_shop.py:app", "order", "--yes")
    assert wrong.exit_code == 2
    assert "no view 'order'" in wrong.output
