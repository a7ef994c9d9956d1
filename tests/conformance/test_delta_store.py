"""The laws of a store hold for Delta tables, in a folder, and others can read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.errors import InvalidPipeline, InvalidSetting, StoreError, StoreUnavailable
from headrace.schema.row_hashes import row_hashes
from headrace.store.contract import (
    Changes,
    Steps,
    Store,
    StoredView,
    StorePosition,
    StoreTable,
)
from headrace.store.delta import Delta
from headrace.store.delta import table as tables
from headrace.store.suite import StoreSuite, changes_of, rows_of
from tests.spark import shared

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("revision", pa.int64())])


class TestDelta(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Delta(str(tmp_path / "lake"))

    def test_names_may_be_keywords_and_have_any_characters(
        self, store: Store, tmp_path: Path
    ) -> None:
        names = ["select", "Group", 'a"quoted"name', "it's", "--", "%s", "ümlaut", "a.b"]
        columns = pa.schema([(name, pa.int64()) for name in names])
        view = StoredView("My-app.1", "Group.by-2", columns, ("select", "it's"), tmp_path / "s")
        row = {name: place for place, name in enumerate(names)}
        store.check(view)
        with store.beside(view) as built:
            built.fill([changes_of(view, [row], at=1)], StorePosition("one", 5))
            built.apply(changes_of(view, [{**row, "select": 9}], at=6))
            built.apply(changes_of(view, [], [{"select": 0, "it's": 3}], at=7))
        store.switch(view)
        with store.live(view) as live:
            assert rows_of(live) == [{**row, "select": 9}]

    @pytest.mark.parametrize("names", [("id", "Id"), ("id", "a b"), ("id", "a;b")])
    def test_names_that_delta_cannot_have_are_refused(
        self, store: Store, tmp_path: Path, names: tuple[str, ...]
    ) -> None:
        columns = pa.schema([(name, pa.int64()) for name in names])
        with pytest.raises(InvalidPipeline, match="Delta"):
            store.check(StoredView("shop", "orders", columns, ("id",), tmp_path))


def view(folder: Path) -> StoredView:
    return StoredView("shop", "orders", COLUMNS, ("id",), folder)


def row(id: int, number: int) -> dict[str, Any]:
    return {"id": id, "n": number, "revision": number}


def filled(store: Store, kind: StoredView, rows: list[dict[str, Any]], at: int = 1) -> StoreTable:
    with store.beside(kind) as built:
        built.fill([changes_of(kind, rows, at=at)], StorePosition("one", at))
    store.switch(kind)
    return store.live(kind)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_duckdb_and_polars_read_the_table_at_one_path(lake: Path, tmp_path: Path) -> None:
    kind, path = view(tmp_path), str(lake / "shop" / "orders")
    with filled(Delta(str(lake)), kind, [row(1, 1), row(2, 1)]) as live:
        live.apply(changes_of(kind, [row(3, 2)], [{"id": 1}], at=2))
        expected = [row(2, 1), row(3, 2)]
        assert DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist() == expected
        assert polars.read_delta(path).sort("id").to_dicts() == expected
        with duckdb.connect() as db:
            files = DeltaTable(path).to_pyarrow_dataset()
            db.register("orders", files)
            assert db.sql("SELECT id, n FROM orders ORDER BY id").fetchall() == [(2, 1), (3, 2)]


def test_spark_reads_the_files_that_the_table_names(lake: Path, tmp_path: Path) -> None:
    # There is no Delta for this Spark yet: its package for Spark 4.2 does not load the table.
    kind, path = view(tmp_path), str(lake / "shop" / "orders")
    with filled(Delta(str(lake)), kind, [row(1, 1), row(2, 1)]) as live:
        live.apply(changes_of(kind, [row(3, 2)], [{"id": 1}], at=2))
    found = shared().read.parquet(*DeltaTable(path).file_uris())
    assert [one.asDict() for one in found.orderBy("id").collect()] == [row(2, 1), row(3, 2)]


def test_a_new_version_takes_the_place_of_the_old_one_in_one_commit(
    lake: Path, tmp_path: Path
) -> None:
    kind, path = view(tmp_path), str(lake / "shop" / "orders")
    store = Delta(str(lake))
    filled(store, kind, [row(1, 1)]).close()
    before = DeltaTable(path).version()
    filled(store, kind, [row(2, 2)], at=5).close()
    assert DeltaTable(path).version() == before + 1
    assert not (lake / "shop" / "orders~beside").exists()
    assert DeltaTable(path, version=before).to_pyarrow_table().to_pylist() == [row(1, 1)]


def test_a_switch_that_died_before_it_cleaned_up_takes_no_later_change_back(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, store = view(tmp_path), Delta(str(lake))
    filled(store, kind, [row(1, 1)]).close()
    with store.beside(kind) as built:
        built.fill([changes_of(kind, [row(2, 2)], at=5)], StorePosition("one", 5))
    with monkeypatch.context() as patched:
        patched.setattr("headrace.store.delta.lake.Place.remove", _die)
        with pytest.raises(KeyboardInterrupt):
            store.switch(kind)
    with store.live(kind) as live:
        live.apply(changes_of(kind, [row(3, 3)], at=6))
        store.switch(kind)
        assert rows_of(live) == [row(2, 2), row(3, 3)]
        assert live.position() == StorePosition("one", 6)


def _die(place: object) -> None:
    raise KeyboardInterrupt


def test_the_later_of_two_writers_at_once_writes_nothing(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, store = view(tmp_path), Delta(str(lake))
    with filled(store, kind, [row(1, 1)]) as slow, store.live(kind) as quick:
        merge = tables.DeltaVersion._merge

        def overtaken(self: Any, *arguments: Any) -> None:
            if self is slow:
                quick.apply(changes_of(kind, [row(1, 3)], at=3))
            merge(self, *arguments)

        monkeypatch.setattr(tables.DeltaVersion, "_merge", overtaken)
        with pytest.raises(StoreUnavailable):
            slow.apply(changes_of(kind, [row(1, 2)], at=2))
        assert rows_of(quick) == [row(1, 3)]
        slow.apply(changes_of(kind, [row(1, 2)], at=2))
        assert rows_of(quick) == [row(1, 3)]


def test_small_files_are_compacted_and_old_ones_removed(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_TIDY_EVERY", 5)
    kind, path = view(tmp_path), lake / "shop" / "orders"
    store = Delta(str(lake), keep=timedelta(0))
    with filled(store, kind, [row(0, 1)]) as live:
        for number in range(1, 12):
            live.apply(changes_of(kind, [row(number, 1)], at=number + 1))
        assert rows_of(live) == [row(number, 1) for number in range(12)]
        assert live.position() == StorePosition("one", 12)
    assert len(DeltaTable(str(path)).file_uris()) < 5
    assert len(list(path.glob("*.parquet"))) < 8


def test_a_compaction_of_somebody_else_keeps_the_position(lake: Path, tmp_path: Path) -> None:
    kind, path = view(tmp_path), str(lake / "shop" / "orders")
    with filled(Delta(str(lake)), kind, [row(0, 1)]) as live:
        live.apply(changes_of(kind, [row(1, 1)], at=2))
        DeltaTable(path).optimize.compact()
        assert live.position() == StorePosition("one", 2)
        live.apply(changes_of(kind, [row(2, 1)], at=3))
        assert rows_of(live) == [row(number, 1) for number in range(3)]


@pytest.mark.parametrize("folder", ["s3://AKIA:secret@bucket/lake", "s3://bucket/?secret_key=x"])
def test_a_secret_in_the_address_is_refused_and_never_shown(folder: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Delta(folder)
    assert "secret" not in str(caught.value)
    assert "hunter2" not in repr(Delta("s3://bucket", options={"AWS_SECRET_ACCESS_KEY": "hunter2"}))


def test_what_an_address_names_is_a_folder() -> None:
    assert Delta.from_address("delta:./lake") == Delta("./lake")
    assert Delta("./lake").address == "delta:./lake"


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def stepped(
    kind: StoredView, steps: Sequence[tuple[int, dict[str, Any], bool]], offset: int
) -> Changes:
    """Changes with every step: its minute, its row, and whether it deletes it."""
    rows = [step[1] for step in steps]
    made = changes_of(kind, rows, at=offset)
    return replace(
        made,
        steps=Steps(
            made.rows,
            made.keys,
            pa.array([at(step[0]) for step in steps], pa.timestamp("us", "UTC")),
            pa.array([step[2] for step in steps], pa.bool_()),
        ),
    )


def history(lake: Path) -> list[tuple[Any, ...]]:
    """The number, the beginning and the end of each time of row 1, and if it is now."""
    table = DeltaTable(str(lake / "shop" / "orders")).to_pyarrow_table()
    found = [row for row in table.to_pylist() if row["id"] == 1]
    found.sort(key=lambda row: row["valid_from"] or at(-1))
    return [(row["n"], row["valid_from"], row["valid_to"], row["is_current"]) for row in found]


def test_a_history_has_every_row_with_the_time_in_which_it_was_valid(
    lake: Path, tmp_path: Path
) -> None:
    kind, store = view(tmp_path), Delta(str(lake), history=True)
    assert store.every_change
    with filled(store, kind, [row(1, 1), row(2, 1)]) as live:
        assert history(lake) == [(1, None, None, True)]
        several = [(1, row(1, 2), False), (2, row(1, 3), False), (3, row(3, 1), False)]
        live.apply(stepped(kind, several, 2))
        assert history(lake) == [
            (1, None, at(1), False), (2, at(1), at(2), False), (3, at(2), None, True)
        ]  # fmt: skip
        assert rows_of(live) == [row(1, 3), row(2, 1), row(3, 1)]
        live.apply(stepped(kind, [(4, row(1, 3), True)], 3))
        assert history(lake)[-1] == (3, at(2), at(4), False)
        assert rows_of(live) == [row(2, 1), row(3, 1)]
        live.apply(stepped(kind, [(5, row(1, 5), False), (6, row(1, 5), True)], 4))
        assert history(lake)[-1] == (5, at(5), at(6), False)
        live.apply(stepped(kind, [(7, row(1, 7), False)], 5))
        assert history(lake)[-1] == (7, at(7), None, True)
        assert rows_of(live) == [row(1, 7), row(2, 1), row(3, 1)]
        assert live.position() == StorePosition("one", 5)


def test_steps_that_a_row_shows_already_are_not_in_its_history(lake: Path, tmp_path: Path) -> None:
    kind = view(tmp_path)
    with filled(Delta(str(lake), history=True), kind, [row(1, 3)]) as live:
        live.apply(stepped(kind, [(1, row(1, 3), False)], 2))
        assert history(lake) == [(3, None, None, True)]
        assert live.position() == StorePosition("one", 2)
        live.apply(stepped(kind, [(2, row(1, 4), False)], 3))
        live.apply(stepped(kind, [(2, row(1, 4), False)], 3))
        assert history(lake) == [(3, None, at(2), False), (4, at(2), None, True)]


def test_a_change_of_a_history_reads_the_rows_of_its_keys_alone(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, looked_at = view(tmp_path), list[int]()

    def counted(rows: Any) -> Any:
        looked_at.append(len(rows))
        return row_hashes(rows)

    with filled(Delta(str(lake), history=True), kind, [row(id, 1) for id in range(500)]) as live:
        monkeypatch.setattr(tables, "row_hashes", counted)
        live.apply(stepped(kind, [(1, row(1, 2), False)], 2))
        assert sum(looked_at) < 10
    assert history(lake) == [(1, None, at(1), False), (2, at(1), None, True)]


def test_a_history_refuses_changes_without_times_and_columns_of_its_own_names(
    lake: Path, tmp_path: Path
) -> None:
    kind, store = view(tmp_path), Delta(str(lake), history=True)
    with filled(store, kind, [row(1, 3)]) as live, pytest.raises(StoreError, match="their times"):
        live.apply(changes_of(kind, [row(1, 4)], at=4))
    columns = pa.schema([("id", pa.int64()), ("is_current", pa.bool_())])
    with pytest.raises(InvalidPipeline, match="'is_current'"):
        store.check(StoredView("shop", "orders", columns, ("id",), tmp_path))
