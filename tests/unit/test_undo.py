"""Scripts that take back captured changes, run on a real SQLite database."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.cdc.undo.changes import Range, chosen_topics, read_changes
from headrace.cdc.undo.dialects import SQLite
from headrace.cdc.undo.script import write_script
from headrace.clock import VirtualClock
from headrace.errors import ChangesRemoved, InvalidPosition, UserError
from headrace.log import EARLIEST, LATEST, Commit, Log, Offset, Time
from tests.unit.captured_rows import MOMENT, Captured, write_together

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.float64())])
SECOND = 1_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(MOMENT)


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock) -> Iterator[Log]:
    with hr.open_log(f"file:{tmp_path / 'data'}", clock=clock) as opened:
        yield opened


@pytest.fixture
def orders(log: Log) -> Captured:
    return Captured(log, COLUMNS)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, price REAL)")
    yield connection
    connection.close()


def script(
    log: Log,
    wanted: Range | None = None,
    tables: tuple[str, ...] = (),
    *,
    partial: bool = False,
    rehearsal: bool = False,
) -> str:
    wanted = wanted or Range(EARLIEST, LATEST)
    changes = read_changes(log, chosen_topics(log, "shop", tables), wanted, partial=partial)
    return "\n".join(write_script(changes, "everything", rehearsal=rehearsal))


def run(db: sqlite3.Connection, text: str) -> list[str]:
    """Run a script as a person would, statement by statement; return the changes it left alone."""
    left: list[str] = []
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            rows = db.execute(statement).fetchall()
            left += [row[1] for row in rows]
            statement = ""
    assert not statement.strip()
    assert not db.in_transaction
    return left


def rows(db: sqlite3.Connection, table: str = "orders") -> list[Any]:
    return db.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def fill(db: sqlite3.Connection, *values: tuple[Any, ...]) -> None:
    db.executemany("INSERT INTO orders VALUES (?, ?, ?)", values)


def order(id: int, note: str | None, price: float | None = None) -> dict[str, Any]:
    return {"id": id, "note": note, "price": price}


def test_ten_thousand_deleted_rows_come_back_as_they_were(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    values = [(id, f"it's {id}\n", id / 7) for id in range(10_000)]
    fill(db, *values)
    for place, (id, note, price) in enumerate(values):
        orders.change(order(id, note, price), None, order=place + 1)
    orders.write()
    db.execute("DELETE FROM orders")
    text = script(log)
    assert "10,000 changes of 1 transaction" in text
    assert "NOT UNDONE" not in text
    assert run(db, text) == []
    assert rows(db) == values


def test_changes_of_one_row_are_taken_back_from_the_last_to_the_first(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    orders.change(None, order(1, "a"), tx="1")
    orders.change(order(1, "a"), order(1, "b"), tx="2", at=MOMENT + 1)
    orders.change(order(1, "b"), order(1, "c"), tx="3", at=MOMENT + 2)
    orders.change(order(1, "c"), None, tx="4", at=MOMENT + 3)
    orders.write()
    assert run(db, script(log)) == []
    assert rows(db) == []
    only = Range(Time(MOMENT + 2), Time(MOMENT + 4))
    assert run(db, script(log, only)) == []
    assert rows(db) == [(1, "b", None)]


def test_a_range_has_its_begin_and_not_its_end(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    for id in range(5):
        orders.change(order(id, "x"), None, tx=str(id), at=MOMENT + id * SECOND)
    orders.write()
    wanted = Range(Time(MOMENT + SECOND), Time(MOMENT + 3 * SECOND))
    run(db, script(log, wanted))
    assert [id for id, *_ in rows(db)] == [1, 2]


def test_a_row_that_changed_since_is_left_alone_and_named(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    fill(db, (1, "newer", 1.0), (2, "b", 2.0), (3, "again", 3.0))
    orders.change(order(1, "a", 1.0), order(1, "b", 1.0))
    orders.change(order(2, "a", 2.0), order(2, "b", 2.0))
    orders.change(order(3, "a", 3.0), None)
    orders.change(None, order(4, "a", 3.0))
    orders.write()
    assert run(db, script(log)) == [
        'main.orders {"id": 4}',
        'main.orders {"id": 3}',
        'main.orders {"id": 1}',
    ]
    assert rows(db) == [(1, "newer", 1.0), (2, "a", 2.0), (3, "again", 3.0)]


def test_an_inserted_row_that_changed_since_is_not_deleted(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    fill(db, (1, "a", 2.5))
    orders.change(None, order(1, "a", 1.5))
    orders.write()
    assert run(db, script(log)) == ['main.orders {"id": 1}']
    assert rows(db) == [(1, "a", 2.5)]


def test_text_in_another_case_is_another_text(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    db.execute("DROP TABLE orders")
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT COLLATE NOCASE, price REAL)")
    fill(db, (1, "B", None))
    orders.change(order(1, "a"), order(1, "b"))
    orders.write()
    assert len(run(db, script(log))) == 1
    assert rows(db) == [(1, "B", None)]


def test_earlier_changes_of_a_row_that_is_left_alone_are_left_alone_too(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    fill(db, (1, "b", None))  # back to b by chance, after it was c
    orders.change(order(1, "a"), order(1, "b"), tx="1")
    orders.change(order(1, "b"), order(1, "c"), tx="2", at=MOMENT + 1)
    orders.write()
    assert len(run(db, script(log))) == 2
    assert rows(db) == [(1, "b", None)]


def test_a_column_that_did_not_change_may_have_changed_since(
    orders: Captured, log: Log, db: sqlite3.Connection
) -> None:
    fill(db, (1, "b", 9.0))
    orders.change(order(1, "a", 1.0), order(1, "b", 1.0))
    orders.write()
    assert run(db, script(log)) == []
    assert rows(db) == [(1, "a", 9.0)]


def test_a_rehearsal_changes_nothing(orders: Captured, log: Log, db: sqlite3.Connection) -> None:
    orders.change(order(1, "a"), None)
    orders.write()
    assert run(db, script(log, rehearsal=True)) == []
    assert rows(db) == []


def test_changes_of_a_transaction_to_several_tables_are_taken_back_in_its_order(
    log: Log, orders: Captured, db: sqlite3.Connection
) -> None:
    columns = pa.schema([("id", pa.int64()), ("order_id", pa.int64())])
    lines = Captured(log, columns, table="lines")
    db.execute(
        "CREATE TABLE lines (id INTEGER PRIMARY KEY, order_id INT NOT NULL REFERENCES orders)"
    )
    db.execute("CREATE TRIGGER early BEFORE INSERT ON lines "
               "WHEN NOT EXISTS (SELECT 1 FROM orders WHERE id = NEW.order_id) "
               "BEGIN SELECT RAISE(ABORT, 'a line before its order'); END")  # fmt: skip
    lines.change({"id": 7, "order_id": 1}, None, order=1)
    orders.change(order(1, "a"), None, order=2)
    lines.write()
    orders.write()
    assert run(db, script(log)) == []
    assert rows(db, "lines") == [(7, 1)]


def test_transactions_of_one_moment_keep_the_order_of_a_shared_table(
    log: Log, db: sqlite3.Connection
) -> None:
    first, orders = (Captured(log, COLUMNS, table=name) for name in ("first", "orders"))
    db.execute("CREATE TABLE first (id INTEGER PRIMARY KEY, note TEXT, price REAL)")
    fill(db, (1, "c", None))
    first.change(order(9, "a"), None, tx="b", order=1)  # read before the topic of the orders
    orders.change(order(1, "a"), order(1, "b"), tx="z", order=1)
    orders.change(order(1, "b"), order(1, "c"), tx="b", order=2)
    write_together(log, first, orders)
    assert run(db, script(log)) == []
    assert rows(db) == [(1, "a", None)]


def test_only_the_named_tables_are_undone(
    log: Log, orders: Captured, db: sqlite3.Connection
) -> None:
    other = Captured(log, COLUMNS, table="other")
    for captured in (orders, other):
        captured.change(order(1, "a"), None)
        captured.write()
    assert run(db, script(log, tables=("orders",))) == []
    assert rows(db) == [(1, "a", None)]


def test_an_unknown_table_is_refused_with_the_nearest_name(log: Log, orders: Captured) -> None:
    with pytest.raises(UserError, match=r"no captured table 'order'. Did you mean 'orders'"):
        chosen_topics(log, None, ("order",))


def test_changes_that_compaction_has_removed_are_named(
    log: Log, orders: Captured, db: sqlite3.Connection
) -> None:
    orders.change(order(1, "a"), order(1, "b"))
    orders.change(order(1, "b"), order(1, "c"), tx="2", at=MOMENT + SECOND)
    orders.write()
    log.compact(orders.topic)
    with pytest.raises(ChangesRemoved, match="Compaction has removed 1 record of"):
        script(log)
    fill(db, (1, "c", None))
    text = script(log, partial=True)
    assert "MISSING: Compaction has removed 1 record" in text
    assert run(db, text) == []
    assert rows(db) == [(1, "b", None)]


def test_compaction_outside_of_the_range_is_no_matter(
    log: Log, orders: Captured, clock: VirtualClock
) -> None:
    clock.advance(timedelta(seconds=10))  # so all of it was appended in the range
    orders.change(order(1, "a"), order(1, "b"))
    orders.change(order(1, "b"), order(1, "c"), tx="2", at=MOMENT + SECOND)
    orders.change(order(2, "b"), order(2, "c"), tx="3", at=MOMENT + 2 * SECOND)
    orders.write()
    log.compact(orders.topic)
    assert "1 change of 1 transaction" in script(log, Range(Time(MOMENT + 2 * SECOND), LATEST))


def test_changes_that_retention_has_removed_are_named(tmp_path: Path) -> None:
    clock = VirtualClock(MOMENT)
    with hr.open_log(f"file:{tmp_path}", clock=clock) as log:
        orders = Captured(log, COLUMNS)
        log.alter_topic(
            orders.topic, settings={"cleanup": "delete", "retention": "1h", "segment_age": "1m"}
        )
        for minute in (0, 90):
            clock.advance(timedelta(minutes=minute))
            orders.change(None, order(minute, "a"), tx=str(minute), at=clock.now())
            orders.write()
        clock.advance(timedelta(minutes=2))
        log.upkeep()
        with pytest.raises(ChangesRemoved, match="Retention has removed the records"):
            script(log, Range(Time(MOMENT), LATEST))


def test_what_cannot_be_undone_is_named_in_the_script(log: Log, orders: Captured) -> None:
    orders.change(None, order(1, "b"), op="u")
    orders.change(order(2, "b"), None, snapshot="incremental")
    orders.change(None, order(3, "b"), op="r", snapshot="initial")
    orders.change(None, order(4, "b"))
    orders.write()
    text = script(log)
    assert "-- NOT UNDONE: 1 change in shop.main.orders, without the row from before" in text
    assert "-- NOT UNDONE: 1 difference in shop.main.orders, found by a snapshot" in text
    assert "1 change of 1 transaction" in text


def test_topics_of_two_databases_are_not_mixed(log: Log, orders: Captured) -> None:
    other = Captured(log, COLUMNS, connector="postgresql", schema="public")
    for captured in (orders, other):
        captured.change(order(1, "a"), None)
        captured.write()
    with pytest.raises(UserError, match="several databases"):
        script(log)


def test_a_part_of_a_transaction_is_not_undone_alone(log: Log, orders: Captured) -> None:
    orders.change(order(1, "a"), None, part=1, last_part=False)
    orders.write()
    first = log.head()
    orders.change(order(2, "a"), None, part=2, last_part=True)
    orders.write()
    with pytest.raises(InvalidPosition, match="only a part of transaction 1"):
        script(log, Range(EARLIEST, Commit(first)))
    assert "2 changes of 1 transaction" in script(log)


@pytest.mark.parametrize("ends", [(Offset(1), LATEST), (Time(5), Time(5)), (LATEST, LATEST)])
def test_a_range_needs_two_ends_that_tables_share(ends: Any) -> None:
    with pytest.raises(InvalidPosition):
        Range.between(*ends)


def test_names_and_keys_cannot_break_out_of_comments_and_quotes(
    log: Log, db: sqlite3.Connection
) -> None:
    evil = "a\"; DROP TABLE orders; --\n';\n"
    columns = pa.schema([(evil, pa.string())])
    captured = Captured(log, columns, table="evil", key=evil)
    captured.change({evil: evil}, None, tx="1\n; DROP TABLE orders; --")
    captured.write()
    db.execute('CREATE TABLE evil ("{}" TEXT PRIMARY KEY)'.format(evil.replace('"', '""')))
    assert run(db, script(log)) == []
    assert db.execute("SELECT * FROM evil").fetchall() == [(evil,)]
    assert rows(db) == []


VALUES = st.one_of(
    st.none(),
    st.text(),
    st.binary(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
)


@given(VALUES)
def test_every_value_of_sqlite_comes_back_from_its_literal(value: Any) -> None:
    with sqlite3.connect(":memory:") as db:
        literal = SQLite().literals(pa.array([value]))[0]
        back = db.execute(f"SELECT {literal}").fetchone()[0]
        assert type(back) is type(value)
        assert back == value or (isinstance(value, float) and math.isclose(back, value))
