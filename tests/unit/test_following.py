"""Stores follow the changelog of a view: every change once, whatever happens to either."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline, StoreFenced, StoreUnavailable
from headrace.store import collapse
from headrace.store.contract import StoredView, StorePosition
from headrace.store.following import NOTHING, Follower, Interrupted
from headrace.store.suite import rows_of
from tests.conformance.memory_store import MemoryStore
from tests.view_writer import ViewWriter


class Died(BaseException):
    """The end of a process."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hr.Log]:
    with hr.open_log(f"file:{tmp_path}/data") as log:
        yield log


@pytest.fixture
def writer(log: hr.Log) -> Iterator[ViewWriter]:
    with ViewWriter(log) as writer:
        yield writer


def order(id: int, note: str = "") -> dict[str, Any]:
    return {"id": id, "note": note}


def orders(*ids: int, note: str = "") -> list[dict[str, Any]]:
    return [order(id, note) for id in ids]


def follow(log: hr.Log, store: MemoryStore, **more: Any) -> Follower:
    """Bring a store up to date; return its follower, closed."""
    with Follower(log, "shop", "orders", store, **more) as follower:
        while follower.advance() is not NOTHING:
            pass
    return follower


def rows_in(store: MemoryStore, writer: ViewWriter) -> list[dict[str, Any]]:
    columns = writer.log.topic(writer.topic).topic.schema
    assert columns is not None
    view = StoredView("shop", "orders", columns, writer.key, Path("/nowhere"))
    with store.live(view) as live:
        return rows_of(live)


def test_a_store_shows_the_rows_of_the_view_and_then_its_changes(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2, 3))
    follow(log, store)
    assert rows_in(store, writer) == writer.rows()
    writer.write(order(2, "paid"), deleted=[{"id": 1}], revision=2)
    writer.write(order(4), revision=3)
    follow(log, store)
    assert rows_in(store, writer) == writer.rows()
    assert [row["id"] for row in writer.rows()] == [2, 3, 4]


def test_a_store_of_a_view_without_results_waits(log: hr.Log) -> None:
    store = MemoryStore()
    assert follow(log, store).position is None
    assert not store.shelf.live


def test_a_view_without_rows_is_followed_from_its_first_change(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    follow(log, store)
    writer.write(order(1))
    follow(log, store)
    assert rows_in(store, writer) == writer.rows()


def test_changes_of_a_key_are_applied_as_its_last_one(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    follow(log, store)
    for number in range(6):
        writer.write(order(1, str(number)), deleted=[{"id": 2}], revision=number)
        writer.write(order(2), revision=number)
    before = store.shelf.applied
    follower = follow(log, store)
    assert store.shelf.applied - before == 1
    assert follower.position is not None and follower.position.offset == follower.end == 17
    assert rows_in(store, writer) == writer.rows()


def test_a_store_that_is_far_behind_catches_up_in_parts(
    log: hr.Log, writer: ViewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    follow(log, store)
    for number in range(10):
        writer.write(*orders(*range(number, number + 5), note=str(number)), revision=number)
    monkeypatch.setattr(collapse, "ROWS_AT_ONCE", 12)
    before = store.shelf.applied
    follow(log, store)
    assert store.shelf.applied - before == 4
    assert rows_in(store, writer) == writer.rows()


def test_a_store_that_is_down_loses_nothing(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(order(1))
    follow(log, store)
    store.shelf.down = True
    writer.write(order(1, "changed"), order(2), revision=2)
    with pytest.raises(StoreUnavailable):
        follow(log, store)
    store.shelf.down = False
    follow(log, store)
    assert rows_in(store, writer) == writer.rows()


def test_a_store_that_has_lost_its_last_changes_gets_them_again(
    log: hr.Log, writer: ViewWriter
) -> None:
    store, place = MemoryStore(), ("shop", "orders")
    writer.write(*orders(1, 2))
    with Follower(log, "shop", "orders", store) as follower:
        while follower.advance() is not NOTHING:
            pass
        older = copy.copy(store.shelf.live[place])
        writer.write(order(3), deleted=[{"id": 1}], revision=2)
        while follower.advance() is not NOTHING:
            pass
        follower.close()  # as after a failure
        store.shelf.live[place] = older
        while follower.advance() is not NOTHING:
            pass
    assert rows_in(store, writer) == writer.rows()


def test_new_results_are_built_beside_and_replace_all_rows(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2, 3))
    follow(log, store)
    writer.begin_anew()
    writer.write(order(2, "again"))
    follow(log, store)
    assert rows_in(store, writer) == writer.rows() == [{**order(2, "again"), "revision": 1}]


def test_new_results_are_noticed_while_following(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2, 3))
    with Follower(log, "shop", "orders", store) as follower:
        while follower.advance() is not NOTHING:
            pass
        writer.begin_anew()
        writer.write(order(2, "again"))
        for _ in range(5):
            follower.advance()
    assert rows_in(store, writer) == writer.rows()


def test_a_follower_of_older_results_never_writes_into_newer_ones(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2))
    with Follower(log, "shop", "orders", store) as zombie:
        while zombie.advance() is not NOTHING:
            pass
        source, table = zombie._source, zombie._table
        assert source is not None and table is not None
        writer.begin_anew()
        writer.write(order(7))
        follow(log, store)
        shown = rows_in(store, writer)
        records = collapse.read_records(log, zombie.topic, 0, 2)
        position = StorePosition(source.generation, 99)
        old = collapse.collapsed(records, source.view.columns, ("id",), position)
        with pytest.raises(StoreFenced):
            table.apply(old)
    assert rows_in(store, writer) == shown == writer.rows()


def test_other_settings_of_a_store_build_it_again(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(order(1))
    follow(log, store)
    changed = MemoryStore(store.shelf, settings="other")
    with Follower(log, "shop", "orders", changed) as follower:
        assert "settings" in follower.advance().built
        assert follower.advance() is NOTHING


def test_changes_that_retention_has_removed_build_the_store_again(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2))
    follow(log, store)
    writer.write(order(3), deleted=[{"id": 1}], revision=2)
    log.alter_topic(writer.topic, settings={"retention_bytes": 1, "segment_bytes": 1 << 14})
    for _ in range(3):
        writer.write(order(2, "x" * 20_000), revision=3)
    log.upkeep(writer.topic)
    first = log.topic(writer.topic).partitions[0].first
    assert first > 2, "retention has removed changes that were not applied"
    with Follower(log, "shop", "orders", store) as follower:
        assert "retention has removed changes 2 to" in follower.advance().built
    assert rows_in(store, writer) == writer.rows()


def test_a_compacted_changelog_gives_the_same_rows(log: hr.Log, writer: ViewWriter) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2))
    follow(log, store)
    log.alter_topic(writer.topic, settings={"cleanup": "compact"})
    for number in range(5):
        writer.write(order(2, str(number)), deleted=[{"id": 1}], revision=number)
        writer.write(order(1), revision=number)
    writer.write(deleted=[{"id": 1}])
    log.compact(writer.topic)
    with Follower(log, "shop", "orders", store) as follower:
        assert follower.advance().built == ""
        assert follower.advance() is NOTHING
    assert rows_in(store, writer) == writer.rows()


def test_a_changelog_that_was_made_again_builds_the_store_again(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2))
    follow(log, store)
    log.delete_topic(writer.topic)
    with ViewWriter(log) as again:
        again.write(order(3), revision=2)
        again.write(order(4), revision=2)
        follow(log, store)
        assert rows_in(store, writer) == again.rows()


POINTS = ("filled", "before apply", "applied", "before store switch", "store switched")


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_leaves_a_store_that_catches_up(
    log: hr.Log, writer: ViewWriter, point: str
) -> None:
    store = MemoryStore()
    follow(log, store)
    reached: list[str] = []

    def crash(name: str) -> None:
        reached.append(name)
        if name == "filled":  # changes while it is built
            writer.write(order(5, "meanwhile"), deleted=[{"id": 1}], revision=4)
        if name == point:
            raise Died

    writer.write(*orders(1, 2, 3))
    writer.begin_anew()
    writer.write(*orders(1, 2), revision=2)
    with pytest.raises(Died), Follower(log, "shop", "orders", store, crash_point=crash) as follower:
        while follower.advance() is not NOTHING:
            pass
    assert reached[-1] == point
    writer.write(order(6), revision=5)
    follow(log, store)
    assert rows_in(store, writer) == writer.rows()


def test_changes_while_a_version_is_built_are_in_it_when_it_is_switched(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2, 3))
    seen: list[Any] = []

    def change(point: str) -> None:
        if point == "filled":
            writer.write(order(2, "changed"), deleted=[{"id": 3}], revision=2)
        if point == "store switched":
            seen.append(rows_in(store, writer))

    follow(log, store, crash_point=change)
    assert seen == [writer.rows()]


def test_a_build_that_is_asked_to_stop_leaves_the_live_version(
    log: hr.Log, writer: ViewWriter
) -> None:
    store = MemoryStore()
    writer.write(*orders(1, 2, 3))
    follow(log, store)
    before = rows_in(store, writer)
    writer.begin_anew()
    writer.write(order(9))
    with pytest.raises(Interrupted):
        follow(log, store, stopping=lambda: True)
    assert rows_in(store, writer) == before


def test_a_store_may_be_declared_once() -> None:
    app = hr.App("shop")
    table = app.captured("shop.main.orders", schema="id bigint, note string", key="id")
    with pytest.raises(InvalidPipeline, match="has the store memory: twice"):
        app.view("orders", table, store=[MemoryStore(), MemoryStore()])


def test_an_address_of_no_store_names_those_there_are() -> None:
    app = hr.App("shop")
    table = app.captured("shop.main.orders", schema="id bigint, note string", key="id")
    with pytest.raises(InvalidPipeline, match="no store with the address 'mongo://x'"):
        app.view("orders", table, store="mongo://x")
