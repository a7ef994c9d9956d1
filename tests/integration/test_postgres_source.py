"""What PostgreSQL writes to its log comes out of the source: whole, in order, and once."""

from __future__ import annotations

import contextlib
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.application.verify.sources import Captured, SourceHop
from headrace.application.verify.verify import Verification
from headrace.cdc import run
from headrace.cdc.contract import UNCHANGED, Row, SourceTransaction
from headrace.cdc.postgres import decoder
from headrace.cdc.postgres.source import PostgresSource
from headrace.cdc.state import read_state
from headrace.clock import SystemClock
from headrace.errors import SourceError, SourceUnavailable
from headrace.log import open_log
from headrace.pipeline.app import App
from tests.postgres import changes, read_all, reading
from tests.servers.postgresql import Database, Postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.service

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, note text)"


def _shape(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(change.op, change.key, change.before, change.after) for change in found]


def test_a_transaction_over_several_tables_comes_whole_with_its_time_and_number(
    postgresql: Database,
) -> None:
    postgresql.execute(ITEMS, "CREATE TABLE parts (a int, b text, n int, PRIMARY KEY (b, a))")
    with reading(postgresql, "items", "parts") as source:
        tables = source.tables()
        with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO items VALUES (1, 'a', NULL)")
            cursor.execute("INSERT INTO parts VALUES (1, 'x', 5)")
            cursor.execute("UPDATE parts SET n = 6")
            cursor.execute("DELETE FROM items")
            cursor.execute("SELECT txid_current(), extract(epoch FROM clock_timestamp()) * 1e6")
            number, before = cursor.fetchone()
            cursor.execute("COMMIT")
            cursor.execute("SELECT extract(epoch FROM clock_timestamp()) * 1e6")
            (after,) = cursor.fetchone()
        (transaction,) = read_all(source)
    assert all(any(change.table is table for table in tables) for change in transaction.changes)
    assert transaction.id == str(number)
    assert transaction.whole
    assert transaction.at is not None and before <= transaction.at <= after
    assert [(change.table.full_name, *row) for change, row in
            zip(transaction.changes, _shape(list(transaction.changes)), strict=True)] == [
        ("public.items", "c", (b"1",), None, (b"1", b"a", None)),
        ("public.parts", "c", (b"x", b"1"), None, (b"1", b"x", b"5")),
        ("public.parts", "u", (b"x", b"1"), None, (b"1", b"x", b"6")),
        ("public.items", "d", (b"1",), None, None),
    ]  # fmt: skip


def test_what_was_rolled_back_does_not_come_and_savepoints_are_no_transactions(
    postgresql: Database,
) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN; INSERT INTO items VALUES (1, 'gone'); ROLLBACK")
            cursor.execute("BEGIN; INSERT INTO items VALUES (2, 'kept')")
            cursor.execute("SAVEPOINT s; INSERT INTO items VALUES (3, 'gone'); ROLLBACK TO s")
            cursor.execute("SAVEPOINT t; INSERT INTO items VALUES (4, 'kept'); RELEASE t; COMMIT")
        (transaction,) = read_all(source)
    assert [change.key for change in transaction.changes] == [(b"2",), (b"4",)]


def test_a_value_in_toast_that_did_not_change_is_unsent(postgresql: Database) -> None:
    large = "x" * 10_000
    postgresql.execute(ITEMS, "ALTER TABLE items ALTER note SET STORAGE EXTERNAL")
    postgresql.execute(f"INSERT INTO items VALUES (1, 'a', '{large}')")
    with reading(postgresql, "items") as source:
        postgresql.execute("UPDATE items SET name = 'b'", "UPDATE items SET id = 7")
        assert _shape(changes(source)) == [
            ("u", (b"1",), None, (b"1", b"b", UNCHANGED)),
            ("d", (b"1",), None, None),
            ("c", (b"7",), None, (b"7", b"b", UNCHANGED)),
        ]


def test_with_full_replica_identity_the_row_before_comes_along(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    postgresql.execute("INSERT INTO items VALUES (1, 'a', NULL)")
    with reading(postgresql, "items") as source:
        postgresql.execute(
            "UPDATE items SET name = 'b'", "UPDATE items SET id = 2", "DELETE FROM items"
        )
        assert _shape(changes(source)) == [
            ("u", (b"1",), (b"1", b"a", None), (b"1", b"b", None)),
            ("d", (b"1",), (b"1", b"b", None), None),
            ("c", (b"2",), None, (b"2", b"b", None)),
            ("d", (b"2",), (b"2", b"b", None), None),
        ]


def test_copy_and_inserts_of_many_rows_lose_no_row_when_reading_begins_again(
    postgresql: Database,
) -> None:
    postgresql.execute(ITEMS)
    found: list[SourceTransaction] = []
    with reading(postgresql, "items") as source:
        postgresql.execute("INSERT INTO items SELECT i FROM generate_series(1, 500) i")
        found += read_all(source)
        postgresql.execute("INSERT INTO items SELECT i FROM generate_series(501, 1000) i")
    with PostgresSource(postgresql.url, ["items"]) as source:
        source.attach()
        assert source.begin(found[-1].position) is None
        found += read_all(source)
    keys = [change.key for transaction in found for change in transaction.changes]
    assert keys == [(b"%d" % number,) for number in range(1, 1001)]


def test_a_truncate_is_a_change_of_each_table(postgresql: Database) -> None:
    postgresql.execute(
        ITEMS, "CREATE TABLE kids (id int PRIMARY KEY, item int REFERENCES items)",
        "CREATE TABLE others (id int PRIMARY KEY, item int REFERENCES items)",
    )  # fmt: skip
    with reading(postgresql, "items", "kids") as source:
        postgresql.execute("TRUNCATE items CASCADE")
        (transaction,) = read_all(source)
    assert {(change.table.name, *change[1:]) for change in transaction.changes} == {
        ("items", "t", (), None, None),
        ("kids", "t", (), None, None),
    }


def test_a_partitioned_table_is_one_table(postgresql: Database) -> None:
    postgresql.execute(
        "CREATE TABLE items (id int, name text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (10)",
        # Its columns have another order than those of the whole.
        "CREATE TABLE high (name text, id int PRIMARY KEY)",
        "ALTER TABLE items ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
    )
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        postgresql.execute("INSERT INTO items VALUES (1, 'a'), (11, 'b')")
        postgresql.execute("UPDATE items SET id = 12 WHERE id = 1")
        found = changes(source)
        assert all(change.table is table for change in found)
        assert _shape(found) == [
            ("c", (b"1",), None, (b"1", b"a")),
            ("c", (b"11",), None, (b"11", b"b")),
            ("d", (b"1",), None, None),
            ("c", (b"12",), None, (b"12", b"a")),
        ]
        assert list(source.chunk(table, None, 10).rows) == [(b"11", b"b"), (b"12", b"a")]


def test_a_table_stays_the_same_object_until_its_columns_change(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        (before,) = source.tables()
        postgresql.execute(
            "INSERT INTO items VALUES (1, 'a')",
            "ALTER TABLE items ADD COLUMN price numeric(10, 2)",
            "INSERT INTO items VALUES (2, 'b', NULL, 1.5)",
            "ALTER TABLE items DROP COLUMN note",
            "ALTER TABLE items RENAME COLUMN name TO title",
            "INSERT INTO items VALUES (3, 'c', 2)",
            "ALTER TABLE items ALTER price TYPE text",
            "UPDATE items SET price = 'much' WHERE id = 3",
        )
        found = changes(source)
        assert found[0].table is before
        assert [change.table.columns.names for change in found] == [
            ["id", "name", "note"],
            ["id", "name", "note", "price"],
            ["id", "title", "price"],
            ["id", "title", "price"],
        ]
        assert [change.after for change in found[1:]] == [
            (b"2", b"b", None, b"1.50"),
            (b"3", b"c", b"2.00"),
            (b"3", b"c", b"much"),
        ]
        assert source.tables() == [found[-1].table]
        assert source.tables()[0] is found[-1].table


def test_generated_columns_are_left_out_of_the_stream_and_of_chunks(postgresql: Database) -> None:
    postgresql.execute(
        "CREATE TABLE items (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, "
        "name text)"
    )
    with reading(postgresql, "items") as source:
        postgresql.execute("INSERT INTO items (id, name) VALUES (1, 'a')")
        (table,) = source.tables()
        assert table.columns.names == ["id", "name"]
        assert [change.after for change in changes(source)] == [(b"1", b"a")]
        assert list(source.chunk(table, None, 10).rows) == [(b"1", b"a")]


def test_a_large_transaction_is_streamed_before_its_commit_and_comes_after_it_in_parts(
    postgresql: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "PART_CHANGES", 400)
    postgresql.execute(
        ITEMS, f"ALTER DATABASE {postgresql.name} SET logical_decoding_work_mem='64kB'"
    )
    with reading(postgresql, "items") as source:
        large, small = postgresql.connect(), postgresql.connect()
        with contextlib.closing(large), contextlib.closing(small):
            with large.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("INSERT INTO items SELECT i, 'kept' FROM generate_series(1, 500) i")
                cursor.execute("SAVEPOINT s")
                cursor.execute(
                    "INSERT INTO items SELECT i, 'no' FROM generate_series(1001, 1500) i"
                )
                cursor.execute("ROLLBACK TO s")
                cursor.execute("SAVEPOINT t")
                cursor.execute(
                    "INSERT INTO items SELECT i, 'kept' FROM generate_series(501, 1000) i"
                )
                cursor.execute("RELEASE t")
                with small.cursor() as other:
                    other.execute("INSERT INTO items VALUES (5000, 'small')")
                # The server has sent much of it, and nothing of it is given.
                assert [change.key for change in changes(source)] == [(b"5000",)]
                ((streamed,),) = postgresql.query(
                    "SELECT stream_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = %s",
                    source.slot,
                )
                cursor.execute("UPDATE items SET name = 'late' WHERE id = 1")
                cursor.execute("COMMIT")
            parts = read_all(source)
    assert streamed
    assert len(parts) == 3
    assert len({part.id for part in parts}) == 1
    assert [part.whole for part in parts] == [False, False, True]
    keys = [change.key for part in parts for change in part.changes if change.op == "c"]
    assert keys == [(b"%d" % number,) for number in range(1, 1001)]
    assert parts[-1].changes[-1].after == (b"1", b"late", None)


def test_a_streamed_transaction_that_is_rolled_back_never_comes(postgresql: Database) -> None:
    postgresql.execute(
        ITEMS, f"ALTER DATABASE {postgresql.name} SET logical_decoding_work_mem='64kB'"
    )
    with reading(postgresql, "items") as source:
        with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN; INSERT INTO items SELECT i FROM generate_series(1, 2000) i")
            assert read_all(source) == []
            cursor.execute("ROLLBACK")
        postgresql.execute("INSERT INTO items VALUES (1)")
        assert [change.key for change in changes(source)] == [(b"1",)]


def test_a_chunk_sees_exactly_what_its_rows_show(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
            # Its number is lower than that of what the chunk shows, and so is a subtransaction's.
            cursor.execute("BEGIN; SAVEPOINT s; UPDATE items SET name = 'open'; RELEASE s")
            postgresql.execute("INSERT INTO items VALUES (2, 'shown')")
            chunk = source.chunk(table, None, 10)
            postgresql.execute("INSERT INTO items VALUES (3, 'later')")
            cursor.execute("COMMIT")
        found = read_all(source)
    assert list(chunk.rows) == [(b"1", b"before", None), (b"2", b"shown", None)]
    assert [(one.changes[0].key, chunk.sees(one)) for one in found] == [
        ((b"2",), True),
        ((b"3",), False),
        ((b"1",), False),
    ]
    # All that it shows comes before the place that the stream has to pass.
    assert source.passed(chunk.high, found[0].position)


def test_a_chunk_has_a_position_though_nobody_reads_the_stream(postgresql: Database) -> None:
    postgresql.execute("CREATE TABLE seats (id int PRIMARY KEY)", "INSERT INTO seats VALUES (1)")
    with PostgresSource(postgresql.url, ["seats"]) as source:
        source.attach()
    # As a verification does, which only reads rows, and compares the place with the capture's.
    with PostgresSource(postgresql.url, ["seats"]) as source:
        (table,) = source.tables()
        chunk = source.chunk(table, None, 10)
        assert len(chunk.rows) == 1
        assert source.passed(source.state(None).head, chunk.high)


def test_a_table_is_verified_while_no_capture_runs_if_all_of_it_was_captured(
    postgresql: Database, tmp_path: Path
) -> None:
    def opened() -> PostgresSource:
        return PostgresSource(postgresql.url, ["seats"])

    postgresql.execute("CREATE TABLE seats (id int PRIMARY KEY)", "CREATE TABLE others (id int)")
    with open_log(f"file:{tmp_path}") as log:
        for id in (1, 2):
            with opened() as source:
                run(source, log, "shop", until_caught_up=True)
            postgresql.execute(f"INSERT INTO others VALUES ({id})")
            captured = Captured("shop", "shop", opened, lambda table, clock: None)
            hop = SourceHop(log, "seats", "shop.public.seats", captured, SystemClock())
            with Verification(App("shop"), log) as verification:
                # The server's log has grown by a table that is not captured, and by the reading.
                assert verification.compared(hop).proven
            postgresql.execute(f"INSERT INTO seats VALUES ({id})")
        reached = read_state(log, "shop").reached.position
        with opened() as source:
            assert reached is not None
            assert not source.quiet_since(reached)


def test_a_chunk_waits_until_what_was_read_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """With synchronous replication the log has a commit before others see it."""
    monkeypatch.setattr("headrace.cdc.postgres.source._PATIENCE", 100_000)
    settings = ("synchronous_standby_names=ghost", "synchronous_commit=local")
    with Postgresql.running(*settings) as server, server.database() as database:
        database.execute(ITEMS)
        with reading(database, "items") as source, closing(database.connect()) as connection:
            (table,) = source.tables()

            def commit() -> None:
                with connection.cursor() as cursor:
                    cursor.execute("SET synchronous_commit = on")
                    cursor.execute("INSERT INTO items VALUES (1)")

            writer = threading.Thread(target=commit)
            writer.start()
            found: list[SourceTransaction] = []

            def read() -> bool:
                found.extend(one for one in source.read(0.1) if one.changes)
                return bool(found)

            wait_until(read)
            with pytest.raises(SourceUnavailable, match="synchronous_standby_names"):
                source.chunk(table, None, 10)
            connection.cancel()
            writer.join()
            assert list(source.chunk(table, None, 10).rows) == [(b"1", None, None)]


def test_chunks_follow_the_key_in_the_order_of_the_database(postgresql: Database) -> None:
    postgresql.execute(
        'CREATE TABLE "Items" (a numeric(6, 2), "Select" text, PRIMARY KEY ("Select", a))',
        """INSERT INTO "Items" SELECT i / 4.0, 'k''' || i % 3 FROM generate_series(1, 20) i""",
    )
    with reading(postgresql, "Items") as source:
        (table,) = source.tables()
        rows: list[Row] = []
        after: Row | None = None
        while True:
            chunk = source.chunk(table, after, 6)
            rows += chunk.rows
            if (after := chunk.last) is None:
                break
    assert len(rows) == len(set(rows)) == 20
    assert rows == sorted(rows, key=lambda row: (row[1], float(row[0])))


def test_a_table_that_was_changed_under_a_snapshot_is_said_to_be(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        postgresql.execute("ALTER TABLE items DROP COLUMN note")
        with pytest.raises(SourceUnavailable, match=r"public\.items was changed"):
            source.chunk(table, None, 10)


def test_nothing_is_acknowledged_but_what_was_said_to_be_durable(postgresql: Database) -> None:
    """A long transaction has changes from before what was acknowledged last.

    psycopg2's own answers would acknowledge with the next keepalive all that was sent.
    """
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
        with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN; INSERT INTO items VALUES (1)")
            postgresql.execute("INSERT INTO items VALUES (2)")
            (first,) = read_all(source)
            source.acknowledge(first.position)
            wait_until(
                lambda: (
                    [(first.position.partition("@")[0],)]
                    == postgresql.query(confirmed, source.slot)
                )
            )
            postgresql.execute("INSERT INTO items VALUES (3)")
            cursor.execute("COMMIT")
        assert [change.key for change in changes(source)] == [(b"3",), (b"1",)]
        # Asked for an answer, the reader says what it has made durable.
        assert source._stream is not None
        source._stream._send_status()
        assert postgresql.query(confirmed, source.slot) == [(first.position.partition("@")[0],)]


def test_the_slot_of_a_quiet_database_moves_on_with_the_server(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source, postgresql.server.database() as other:
        before = source.state(None)
        other.execute("CREATE TABLE busy AS SELECT i FROM generate_series(1, 10000) i")
        assert read_all(source) == []
        head = source.state(None).head
        assert source.passed(str(source._given), before.head)
        source.acknowledge(str(source._given))
        wait_until(lambda: source.state(None).lag < 8192)
        assert source.passed(source.state(None).head, head)


def test_a_table_without_a_key_any_more_is_named(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        postgresql.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
        postgresql.execute("INSERT INTO items VALUES (1)")
        with pytest.raises(SourceError, match=r"public\.items has no primary key any more"):
            read_all(source)


def test_another_primary_key_is_noticed_whatever_the_replica_identity(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    with reading(postgresql, "items") as source:
        postgresql.execute("INSERT INTO items VALUES (1, 'a')")
        assert [change.key for change in changes(source)] == [(b"1",)]
        postgresql.execute(
            "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (name)",
            "UPDATE items SET note = 'x'",
        )
        (update,) = changes(source)
        assert update.key == (b"a",) and update.table.key == ("name",)
        postgresql.execute("ALTER TABLE items DROP CONSTRAINT items_pkey", "DELETE FROM items")
        with pytest.raises(SourceError, match=r"public\.items has no primary key any more"):
            read_all(source)


def test_changes_of_a_table_that_is_gone_have_the_key_that_it_had(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    with reading(postgresql, "items") as source:
        source.tables()
        postgresql.execute("INSERT INTO items VALUES (1, 'a')", "DROP TABLE items")
        assert [change.key for change in changes(source)] == [(b"1",)]


def test_detaching_leaves_nothing_behind_and_both_can_be_repeated(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with PostgresSource(postgresql.url) as source:
        source.attach()
        source.attach()
        assert len(postgresql.query("SELECT 1 FROM pg_publication")) == 1
        source.detach()
        source.detach()
    assert postgresql.query("SELECT 1 FROM pg_publication") == []
    assert postgresql.query(
        "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", source.slot
    ) == []  # fmt: skip


def test_a_table_can_be_added_to_what_is_captured(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "CREATE TABLE more (id int PRIMARY KEY)")
    with reading(postgresql, "items") as source:
        position = source.state(None).head
    with PostgresSource(postgresql.url, ["items", "more"]) as source:
        source.attach()
        assert source.begin(position) is None
        postgresql.execute("INSERT INTO more VALUES (1)")
        assert [change.table.full_name for change in changes(source)] == ["public.more"]


def test_a_chunk_that_was_read_ahead_shows_what_was_read_since(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "INSERT INTO items SELECT i, 'old' FROM generate_series(1, 6) i")
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        first = source.chunk(table, None, 2)
        asked = source._ahead._asked
        assert asked is not None
        early = asked.found.result()
        assert early is not None
        postgresql.execute("UPDATE items SET name = 'new' WHERE id = 3")
        (update,) = [one for one in read_all(source) if one.changes]
        assert not early.sees(update)
        second = source.chunk(table, first.last, 2)
        assert list(second.rows) == [(b"3", b"new", None), (b"4", b"old", None)]
        assert second.sees(update)


def test_a_chunk_is_read_ahead_unless_the_stream_has_gone_on(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "INSERT INTO items SELECT i, 'old' FROM generate_series(1, 6) i")
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        first = source.chunk(table, None, 2)
        asked = source._ahead._asked
        assert asked is not None
        assert source.chunk(table, first.last, 2) is asked.found.result()
        # Another place, or a smaller chunk, is read by itself.
        assert [int(row[0]) for row in source.chunk(table, None, 2).rows] == [1, 2]
        assert [int(row[0]) for row in source.chunk(table, first.last, 1).rows] == [3]


def test_a_chunk_that_could_not_be_read_ahead_is_read_again(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "INSERT INTO items SELECT i, 'old' FROM generate_series(1, 6) i")
    with reading(postgresql, "items") as source:
        (table,) = source.tables()
        last = source.chunk(table, None, 2).last
        for _ in range(2):
            asked = source._ahead._asked
            assert asked is not None
            asked.found.result()
            postgresql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND query LIKE '%pg_logical_emit_message%' AND "
                f"datname = current_database() AND pid <> {source._connection.info.backend_pid}"
            )
            chunk = source.chunk(table, last, 2)
            last = chunk.last
        assert [int(row[0]) for row in chunk.rows] == [5, 6]


def test_a_server_that_ends_while_a_chunk_is_read_ahead_is_only_unavailable() -> None:
    with Postgresql.running() as server, server.database() as database:
        database.execute(ITEMS, "INSERT INTO items SELECT i, 'x' FROM generate_series(1, 6) i")
        try:
            with reading(database, "items") as source:
                (table,) = source.tables()
                source.chunk(table, None, 2)
                asked = source._ahead._asked
                assert asked is not None and asked.found.result() is not None
                server.kill()
        finally:
            server.start()
