"""The laws of a store, as tests. Every store of headrace passes them, and yours should too.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

They need pytest. The store has to be empty at the beginning of each test.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import StoreFenced, StoreUnavailable
from headrace.store.contract import Changes, Store, StoredView
from headrace.store.suite_views import (
    KEYS,
    Row,
    apply_forever,
    changes_of,
    comparable,
    fill,
    filled,
    order,
    orders,
    orders_view,
    parts_of,
    position_at,
    reading,
    rows_of,
)

__all__ = ["StoreSuite", "changes_of", "rows_of"]

_KILLS = 3

_VALUES = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(20, 4)),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("bytes", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string()), ("floor", pa.int64())])),
        ("revision", pa.int64()),
    ]
)


class StoreSuite:
    """The laws of a store. A subclass has a fixture `store`, and says what the store lacks."""

    survives = True
    """False if the store ends with its process."""
    atomic = True
    """False if readers may see a part of the changes that are applied at once."""
    versioned = False
    """True if it goes by the version of each key, and not by its position alone."""

    def outage(self, store: Store) -> contextlib.AbstractContextManager[None] | None:
        """A block in which the store is down. None if that cannot be had."""
        return None

    # Versions

    def test_a_view_that_was_never_filled_has_no_position_and_no_rows(
        self, store: Store, tmp_path: Path
    ) -> None:
        with store.live(orders_view(tmp_path)) as live:
            assert live.position() is None
            assert rows_of(live) == []

    def test_a_version_built_beside_is_seen_once_it_is_switched(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = orders_view(tmp_path)
        with store.beside(view) as built:
            built.fill(parts_of(view, orders(1, 3)), position_at(7))
            assert built.position() == position_at(7)
            with store.live(view) as live:
                assert rows_of(live) == []
                assert live.position() is None
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == orders(1, 3)
            assert live.position() == position_at(7)

    def test_a_switch_removes_the_rows_that_the_new_version_lacks(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 5))
        fill(store, view, orders(2, 2), position_at(9, "two"))
        with store.live(view) as live:
            assert rows_of(live) == orders(2, 2)
            assert live.position() == position_at(9, "two")

    def test_a_switch_that_is_done_again_changes_nothing(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == orders(1, 3)

    def test_an_unfinished_version_has_no_position_and_is_removed_by_the_next(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))

        def torn() -> Iterator[Changes]:
            yield from parts_of(view, orders(2, 50))
            raise _Torn

        with store.beside(view) as built, pytest.raises(_Torn):
            built.fill(torn(), position_at(9))
        with store.beside(view) as built:
            assert built.position() is None
            assert rows_of(built) == []
            built.fill(parts_of(view, orders(3, 1)), position_at(10))
        with store.live(view) as live:
            assert rows_of(live) == orders(1, 3)
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == orders(3, 1)

    def test_a_version_can_be_empty(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        fill(store, view, [], position_at(9))
        with store.live(view) as live:
            assert rows_of(live) == []
            assert live.position() == position_at(9)

    def test_changes_are_applied_beside_before_the_switch(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = orders_view(tmp_path)
        with store.beside(view) as built:
            built.fill(parts_of(view, orders(1, 3)), position_at(5))
            built.apply(changes_of(view, [order(0, 8)], [{"id": 2}], at=8))
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == [order(0, 8), order(1, 1)]
            assert live.position() == position_at(8)

    # Changes

    def test_changes_and_their_position_are_there_when_it_is_opened_again(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(3, 9)], [{"id": 0}], at=9))
        if self.survives:
            with store.live(view) as live:
                assert rows_of(live) == [order(1, 1), order(2, 1), order(3, 9)]
                assert live.position() == position_at(9)

    def test_changes_that_are_applied_again_change_nothing(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        with store.live(view) as live:
            change = changes_of(view, [order(1, 9)], [{"id": 0}], at=9)
            live.apply(change)
            live.apply(change)
            assert rows_of(live) == [order(1, 9), order(2, 1)]

    def test_changes_from_before_its_position_never_bring_a_row_back(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        with store.live(view) as live:
            live.apply(changes_of(view, [], [{"id": 0}], at=20))
            live.apply(changes_of(view, [order(0, 15), order(7, 15)], [{"id": 1}], at=15))
            assert rows_of(live) == [order(1, 1), order(2, 1)]
            assert live.position() == position_at(20)

    def test_the_last_change_of_each_key_gives_what_all_of_them_give(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 3))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(0, 9), order(5, 9)], [{"id": 1}], at=9))
            live.apply(changes_of(view, [order(1, 10)], [{"id": 5}], at=10))
            one_by_one = rows_of(live)
        fill(store, view, orders(1, 3), position_at(7))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(0, 10), order(1, 10)], [{"id": 5}], at=10))
            at_once = rows_of(live)
        assert [row["id"] for row in at_once] == [row["id"] for row in one_by_one] == [0, 1, 2]

    def test_a_row_whose_key_changes_is_under_its_new_key_alone(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 2))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(8, 9)], [{"id": 1}], at=9))
            assert rows_of(live) == [order(0, 1), order(8, 9)]

    def test_a_key_that_was_deleted_can_come_back(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 1))
        with store.live(view) as live:
            live.apply(changes_of(view, [], [{"id": 0}], at=9))
            live.apply(changes_of(view, [order(0, 10)], at=10))
            assert rows_of(live) == [order(0, 10)]

    def test_deleting_a_key_that_is_not_there_changes_nothing(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 1))
        with store.live(view) as live:
            live.apply(changes_of(view, [], [{"id": 77}], at=9))
            assert rows_of(live) == orders(1, 1)

    def test_no_changes_can_still_move_the_position(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 1))
        with store.live(view) as live:
            live.apply(changes_of(view, [], at=30))
            assert live.position() == position_at(30)
            assert rows_of(live) == orders(1, 1)

    def test_changes_of_another_generation_are_refused(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 2))
        with store.live(view) as live:
            change = changes_of(view, [order(0, 99)], at=99, generation="another")
            with pytest.raises(StoreFenced):
                live.apply(change)
            assert rows_of(live) == orders(1, 2)
            assert live.position() == position_at(7)

    def test_an_older_version_of_a_key_never_replaces_a_newer_one(
        self, store: Store, tmp_path: Path
    ) -> None:
        if not self.versioned:
            pytest.skip("it goes by positions, which are in the same transaction")
        view = filled(store, tmp_path, orders(1, 2))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(1, 20)], [{"id": 0}], at=20))
            older = changes_of(view, [order(0, 15), order(1, 15)], at=21, version=15)
            live.apply(older)
            assert rows_of(live) == [order(1, 20)]

    def test_rows_are_found_by_their_keys(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 4))
        with store.live(view) as live:
            live.apply(changes_of(view, [order(2, 9)], [{"id": 1}], at=9))
            keys = pa.table({"id": pa.array([2, 1, 77, 3], view.columns.field("id").type)})
            parts = pa.concat_tables([keys.slice(0, 0), keys.slice(0, 1), keys.slice(1)])
            found = [row for batch in live.find(parts) for row in batch.to_pylist()]
            assert sorted(found, key=lambda row: int(row["id"])) == [order(2, 9), order(3, 1)]
            assert list(live.find(keys.slice(0, 0))) == []

    # Values

    def test_values_are_read_as_they_were_written(self, store: Store, tmp_path: Path) -> None:
        view = orders_view(tmp_path, _VALUES)
        full = {
            "id": 2**63 - 1,
            "text": "naïve 'quoted' \"text\" \\ \t\n \u0001 😀 {}",
            "tiny": -128,
            "small": -(2**15),
            "whole": -(2**31),
            "single": 1.5,
            "double": 0.1,
            "money": Decimal("-1234567890123456.7890"),
            "yes": False,
            "day": date(1969, 12, 31),
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "bytes": b"\x00\xff\\n",
            "tags": ["a", None, ""],
            "place": {"city": "Zürich", "floor": None},
            "revision": 1,
        }
        rows: list[Row] = [
            full,
            {**dict.fromkeys(_VALUES.names), "id": 1, "revision": 1},
            {**full, "id": 2, "single": float("nan"), "double": float("nan"), "text": ""},
            {**full, "id": 3, "double": float("inf"), "single": float("-inf"), "tags": []},
            {**full, "id": -(2**63), "double": 5e-324, "money": Decimal("0.0000"), "bytes": b""},
            {**full, "id": 4, "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
        ]
        with store.beside(view) as built:
            built.fill(parts_of(view, rows[:3]), position_at(5))
            built.apply(changes_of(view, rows[3:], at=6))
            found = rows_of(built)
        assert list(map(comparable, found)) == [
            comparable(row) for row in sorted(rows, key=lambda row: int(row["id"]))
        ]

    def test_keys_may_have_several_columns_of_any_type_and_nulls(
        self, store: Store, tmp_path: Path
    ) -> None:
        columns = pa.schema(
            [
                ("name", pa.string()),
                ("at", pa.timestamp("us", "UTC")),
                ("price", pa.decimal128(10, 2)),
                ("n", pa.int64()),
            ]
        )
        view = orders_view(tmp_path, columns, ("name", "at", "price"))
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        keys: list[Row] = [
            {"name": name, "at": at, "price": price}
            for name in ("a", "a:b", "", None)
            for at in (noon, None)
            for price in (Decimal("1.00"), None)
        ]
        with store.beside(view) as built:
            built.fill(parts_of(view, [{**key, "n": 1} for key in keys]), position_at(5))
            built.apply(changes_of(view, [{**key, "n": 2} for key in keys[::2]], keys[1::2], at=6))
            found = rows_of(built)
            asked = pa.Table.from_pylist(keys).cast(pa.schema(list(columns)[:3]))
            assert sum(map(len, built.find(asked))) == len(found)
            # Other rows have a value of the one key and a value of the other.
            assert sum(map(len, built.find(asked.take([0, 10])))) == 2
        assert len(found) == len(keys[::2])
        assert all({**key, "n": 2} in found for key in keys[::2])

    def test_names_may_be_keywords_and_have_any_characters(
        self, store: Store, tmp_path: Path
    ) -> None:
        names = ["select", "Order", "order", 'a "quoted" name', "it's", "a;b--", "%s", "ümlaut"]
        columns = pa.schema([(name, pa.int64()) for name in names])
        view = StoredView("My-app.1", "Group.by-2", columns, ("select", "it's"), tmp_path / "s")
        row = {name: place for place, name in enumerate(names)}
        with store.beside(view) as built:
            built.fill(parts_of(view, [row]), position_at(5))
            built.apply(changes_of(view, [{**row, "select": 9}], at=6))
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == [row, {**row, "select": 9}]
            live.apply(changes_of(view, [], [{"select": 9, "it's": 4}], at=7))
            assert rows_of(live) == [row]

    def test_rows_are_read_with_the_columns_of_the_view(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 2))
        with store.live(view) as live:
            batches = list(live.read())
        assert batches
        assert all(batch.schema.equals(view.columns) for batch in batches)

    def test_many_rows_come_back_whole(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 5_000))
        with store.live(view) as live:
            live.apply(
                changes_of(view, orders(2, 2_500), [{"id": i} for i in range(4_000, 5_000)], at=9)
            )
            found = rows_of(live)
        assert found == [*orders(2, 2_500), *orders(1, 4_000)[2_500:]]

    # Neighbours

    def test_views_and_applications_do_not_touch_each_other(
        self, store: Store, tmp_path: Path
    ) -> None:
        mine = filled(store, tmp_path, orders(1, 2))
        others = [
            StoredView(app, name, mine.columns, mine.key, mine.folder)
            for app, name in (("shop", "order"), ("shop", "orders2"), ("shop2", "orders"))
        ]
        for number, other in enumerate(others, 3):
            fill(store, other, orders(number, 1), position_at(7))
        store.remove(others[0])
        with store.beside(others[1]):
            pass
        with store.live(mine) as live:
            assert rows_of(live) == orders(1, 2)
        for number, other in list(enumerate(others, 3))[1:]:
            with store.live(other) as live:
                assert rows_of(live) == orders(number, 1)

    def test_a_view_that_was_removed_leaves_nothing(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, 2))
        with store.beside(view) as built:
            built.fill(parts_of(view, orders(2, 2)), position_at(9))
        store.remove(view)
        store.switch(view)
        with store.live(view) as live:
            assert live.position() is None
            assert rows_of(live) == []
        store.remove(view)

    # Readers

    def test_readers_see_all_of_some_changes_or_none(self, store: Store, tmp_path: Path) -> None:
        if not self.atomic:
            pytest.skip("it has no transactions")
        view = filled(store, tmp_path, orders(1, KEYS))
        with reading(store, view) as seen, store.live(view) as live:
            for number in range(10, 30):
                live.apply(changes_of(view, orders(number, KEYS), at=number))
        assert all(len(set(numbers)) == 1 and len(numbers) == KEYS for numbers in seen)

    def test_readers_see_the_old_version_or_the_new_one(self, store: Store, tmp_path: Path) -> None:
        view = filled(store, tmp_path, orders(1, KEYS))
        with reading(store, view) as seen:
            for number in range(10, 16):
                fill(store, view, orders(number, KEYS + number), position_at(number, str(number)))
        allowed = {(1, KEYS), *((number, KEYS + number) for number in range(10, 16))}
        assert all(len(set(n)) == 1 and (n[0], len(n)) in allowed for n in seen)

    # Failures

    def test_a_process_killed_at_any_moment_leaves_rows_and_position_that_agree(
        self, store: Store, tmp_path: Path
    ) -> None:
        if not self.survives:
            pytest.skip("it ends with its process")
        view = filled(store, tmp_path, orders(7, KEYS))
        # Its children are forked from a process that has nothing open, and that is there once.
        context = multiprocessing.get_context("forkserver")
        # pyarrow loads pandas, if it is there, when it first converts Python's values.
        modules = ["headrace.store.suite", type(store).__module__, "pandas"]
        context.set_forkserver_preload(modules)
        seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(2**32))
        print(f"HEADRACE_SEED={seed}")
        chance = random.Random(seed)
        for _ in range(_KILLS):
            parent, child = context.Pipe()
            process = context.Process(target=apply_forever, args=(store, view, child))
            process.start()
            child.close()
            for _ in range(chance.randrange(1, 8)):
                parent.recv()
            threading.Event().wait(chance.random() * 0.02)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            parent.close()
            with store.live(view) as live:
                reached = live.position()
                assert reached is not None
                if not self.atomic:
                    # What was begun is done again, as the follower of the changelog does.
                    live.apply(changes_of(view, orders(reached.offset + 1, KEYS)))
                    reached = live.position()
                    assert reached is not None
                assert rows_of(live) == orders(reached.offset, KEYS)

    def test_a_store_that_is_down_says_so_and_goes_on_when_it_is_back(
        self, store: Store, tmp_path: Path
    ) -> None:
        view = filled(store, tmp_path, orders(1, 2))
        down = self.outage(store)
        if down is None:
            pytest.skip("it cannot be down")
        change = changes_of(view, [order(0, 9)], at=9)
        with contextlib.ExitStack() as stack:
            live = stack.enter_context(store.live(view))
            with down:
                with pytest.raises(StoreUnavailable):
                    live.apply(change)
                with pytest.raises(StoreUnavailable), store.live(view) as another:
                    another.position()
        with store.live(view) as live:
            live.apply(change)
            assert rows_of(live) == [order(0, 9), order(1, 1)]


class _Torn(Exception):
    """The failure of a source of rows."""
