"""Verification of the first hop: a table in SQLite, and the topic of its captured changes."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.application.verify import patience, sources
from headrace.application.verify.attached import captured_by
from headrace.application.verify.hops import LogHop
from headrace.application.verify.result import HopResult
from headrace.application.verify.sources import Captured, SourceHop, SourceSide
from headrace.application.verify.verify import Verification
from headrace.cdc.attachment import Attachment, attached, captures_folder, remember
from headrace.cdc.running import run
from headrace.cdc.sqlite.source import SqliteSource
from headrace.cdc.supervised import SupervisedRun
from headrace.clock import SECOND, SystemClock
from headrace.sqlite import connect
from headrace.store.lock import only_one
from tests.waiting import wait_until

TOPIC = "shop.main.products"
ROWS = 40


class Database:
    """A database of products that is captured, or was."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.log = hr.open_log(f"file:{folder}/log")
        with contextlib.closing(connect(str(self.path), 30.0)) as db:
            db.pragma("journal_mode", "WAL")
            db.execute(
                "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price REAL, data BLOB)"
            )
            rows = ((id, f"chair {id}", id + 0.5, b"x" * (id % 9)) for id in range(ROWS))
            db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)

    def execute(self, sql: str) -> None:
        with contextlib.closing(connect(str(self.path), 30.0)) as db, db:
            db.execute(sql)

    def bypass(self, sql: str) -> None:
        """Change rows behind the back of the triggers."""
        with contextlib.closing(apsw.Connection(str(self.path))) as db, db:
            triggers = list(db.execute("SELECT name, sql FROM sqlite_schema WHERE type='trigger'"))
            for name, _ in triggers:
                db.execute(f'DROP TRIGGER "{name}"')
            db.execute(sql)
            for _, made in triggers:
                db.execute(str(made))

    def open(self) -> SqliteSource:
        return SqliteSource(self.path)

    def capture(self) -> None:
        with self.open() as source:
            run(source, self.log, "shop", until_caught_up=True)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """A capture that runs beside the block."""
        ended = threading.Event()

        def work() -> None:
            with self.open() as source:
                run(source, self.log, "shop", stopped=ended.is_set)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextlib.contextmanager
    def capturing_attached(self) -> Iterator[None]:
        """A capture of the attached database that takes requests, beside the block."""
        ended = threading.Event()

        def work() -> None:
            with only_one(captures_folder(self.log) / "shop.lock", "It runs", ""):
                SupervisedRun(self.log, attached(self.log), stopped=ended.is_set).run()

        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: bool(self.log.topic_ids(["_headrace.cdc.shop.requests"])))
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def hop(self) -> SourceHop:
        captured = Captured("shop", "shop.db", self.open, lambda table, clock: None)
        return SourceHop(self.log, "products", TOPIC, captured, SystemClock())

    def verify(self, last: HopResult | None = None) -> HopResult:
        with Verification(hr.App("shop"), self.log) as verification:
            return verification.compared(self.hop(), last)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path)
    made.capture()
    yield made
    made.log.close()


def test_what_was_captured_well_is_proven(database: Database) -> None:
    database.execute(
        "UPDATE products SET name = 'table' WHERE id = 3; DELETE FROM products WHERE id = 4"
    )
    database.capture()
    found = database.verify()
    assert found.proven and not found.moving
    assert found.rows == found.rows_other == ROWS - 1


def test_rows_that_escaped_the_capture_are_named(database: Database) -> None:
    database.bypass("UPDATE products SET price = 99 WHERE id = 3")
    database.bypass("DELETE FROM products WHERE id = 4")
    database.bypass("INSERT INTO products VALUES (90, 'sofa', 1, NULL)")
    found = database.verify()
    rows = {row.key["id"]: row for row in found.rows_differing}
    assert {key: row.kind for key, row in rows.items()} == {
        3: "different", 4: "extra", 90: "missing",
    }  # fmt: skip
    assert (rows[3].expected, rows[3].found) == ({"price": 99.0}, {"price": 3.5})
    assert rows[3].write is not None and rows[3].write.commit > 0


def test_only_changed_rows_are_looked_up_in_the_database(database: Database) -> None:
    first = database.verify()
    database.execute("UPDATE products SET name = 'table' WHERE id IN (3, 5)")
    database.capture()
    database.bypass("UPDATE products SET name = 'sofa' WHERE id = 5")
    found = database.verify(first)
    assert found.rows == found.rows_other == 2
    assert [row.key["id"] for row in found.rows_differing] == [5]


def test_rows_that_escaped_stay_known_until_they_are_captured(database: Database) -> None:
    database.bypass("UPDATE products SET price = 99 WHERE id = 3")
    found = database.verify(database.verify())
    assert [row.key["id"] for row in found.rows_differing] == [3]
    assert not found.whole
    database.execute("UPDATE products SET price = 98 WHERE id = 3")
    database.capture()
    assert database.verify(found).proven


def test_a_capture_that_stands_still_is_named_and_nothing_is_reported(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_PATIENCE", 0)
    database.execute("UPDATE products SET name = 'table' WHERE id = 3")
    found = database.verify()
    assert not found.differences
    assert "stands still" in found.error
    assert "headrace cdc run" in found.hint


def test_a_running_workload_gives_no_false_alarm(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that never come to rest are compared again for as long as this.
    monkeypatch.setattr(patience, "_LONGEST", 3 * SECOND)
    ended = threading.Event()
    written = 0

    def work() -> None:
        nonlocal written
        chosen = random.Random(1)
        with contextlib.closing(connect(str(database.path), 30.0)) as db:
            while not ended.is_set():
                id = chosen.randrange(2 * ROWS)
                with db:
                    db.execute("DELETE FROM products WHERE id = ?", (id // 2 * 2,))
                    db.execute(
                        "REPLACE INTO products VALUES (?, ?, ?, ?)",
                        (id, f"sofa {written}", written, b"x" * (written % 9)),
                    )
                written += 1

    writer = threading.Thread(target=work)
    with database.capturing():
        writer.start()
        try:
            wait_until(lambda: written > 20)
            results = [database.verify() for _ in range(2)]
        finally:
            ended.set()
            writer.join()
        last = database.verify()
    assert not any(found.differences or found.error for found in results)
    assert last.proven and not last.moving


def test_a_row_that_changes_at_each_look_is_on_its_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_PATIENCE", 0)
    numbers = itertools.count()

    def change() -> None:
        database.execute(f"UPDATE products SET name = 'sofa {next(numbers)}' WHERE id = 3")
        database.capture()

    def changing(read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def changed(*arguments: Any) -> Iterator[Any]:
            change()
            yield from read(*arguments)
            change()

        return changed

    for name in ("rows", "find"):
        monkeypatch.setattr(SourceSide, name, changing(getattr(SourceSide, name)))
    found = database.verify()
    assert (found.differences, found.moving) == (0, 1)


def test_an_attached_database_is_found_by_its_topic_and_captured_again(tmp_path: Path) -> None:
    database = Database(tmp_path)
    remember(
        database.log, Attachment("shop", "sqlite", f"sqlite:{database.path}", ("main.products",))
    )
    assert captured_by(database.log, TOPIC) is None
    database.capture()
    assert captured_by(database.log, "shop.main.orders") is None
    captured = captured_by(database.log, TOPIC)
    assert captured is not None
    database.bypass("UPDATE products SET price = 99 WHERE id = 3")
    hop = SourceHop(database.log, "products", TOPIC, captured, SystemClock())
    with Verification(hr.App("shop"), database.log) as verification:
        assert verification.compared(hop).different == 1
        captured.again(hop.table, SystemClock())
        assert verification.compared(hop).proven
        database.bypass("DELETE FROM products WHERE id = 4")
        with database.capturing_attached():
            captured.again(hop.table, SystemClock())
        assert verification.compared(hop).proven
    database.log.close()


def test_a_repair_captures_what_escaped(tmp_path: Path) -> None:
    database = Database(tmp_path)
    remember(
        database.log, Attachment("shop", "sqlite", f"sqlite:{database.path}", ("main.products",))
    )
    database.capture()
    database.bypass("UPDATE products SET price = 99 WHERE id = 3")
    database.bypass("DELETE FROM products WHERE id = 4")
    app = hr.App("shop")
    app.view("products", app.captured(TOPIC, schema="id bigint, name string", key="id"))
    end = database.log.topic(TOPIC).records
    with Verification(app, database.log) as verification:
        found = verification.verify("products", repair=True)
        assert found.repaired == 2
        assert found.hops[0].proven
        assert verification.verify("products").hops[0].proven
    # One row that differed, and the delete with its tombstone.
    assert database.log.topic(TOPIC).records == end + 3
    database.log.close()


def test_a_database_that_cannot_be_opened_leaves_the_other_hops(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.view("products", app.captured(TOPIC, schema="id bigint, name string", key="id"))
    with hr.open_log(f"file:{tmp_path}/log") as log:
        captures_folder(log).mkdir(parents=True)
        (captures_folder(log) / "shop.json").write_text("{}")
        with Verification(app, log) as verification:
            first, second = verification.hops(app.views["products"])
    assert isinstance(first, HopResult)
    assert "cannot be read" in first.error
    assert isinstance(second, LogHop)


@pytest.mark.slow
def test_one_changed_byte_in_a_million_rows_is_found(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with contextlib.closing(connect(str(database.path), 30.0)) as db, db:
        rows = ((id, f"chair {id}", id + 0.5, b"x" * 20) for id in range(ROWS, 1_000_000))
        db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
    database.capture()
    first = database.verify()
    assert first.proven and first.rows == 1_000_000
    database.bypass("UPDATE products SET name = 'chais 777777' WHERE id = 777777")
    found = database.verify()
    (row,) = found.rows_differing
    assert (row.kind, row.key, found.differing) == ("different", {"id": 777_777}, 1)
    assert (row.expected, row.found) == ({"name": "chais 777777"}, {"name": "chair 777777"})
    database.log.close()
