"""A source that no longer has all changes says so before it gives one; else none is lost."""

from __future__ import annotations

import pytest

from headrace.cdc.contract import SourceTransaction
from headrace.cdc.postgres.position import Position
from headrace.cdc.postgres.source import PostgresSource
from headrace.errors import SourceUnavailable
from tests.postgres import read_all, reading
from tests.servers.postgresql import Database, Postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.service

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def _position(database: Database) -> str:
    """The position after a first change, which was acknowledged."""
    database.execute(ITEMS)
    with reading(database, "items") as source:
        database.execute("INSERT INTO items VALUES (0)")
        (transaction,) = read_all(source)
        source.acknowledge(transaction.position)
    return transaction.position


def _gap(database: Database, position: str) -> str:
    """The reason of the gap that is found after a position."""
    with PostgresSource(database.url, ["items"]) as source:
        source.attach()
        gap = source.begin(position)
        assert gap is not None and gap.after == position
        # Reading can begin without a position, where changes are still there.
        assert source.begin(None) is None
        database.execute("INSERT INTO items VALUES (100)")
        keys = [change.key for one in read_all(source) for change in one.changes]
        assert keys[-1] == (b"100",)
        if gap.before is not None:
            assert Position.parse(gap.before).lsn >= 0
    return gap.reason


def test_a_slot_that_was_dropped_is_a_gap(postgresql: Database) -> None:
    position = _position(postgresql)
    with PostgresSource(postgresql.url, ["items"]) as source:
        postgresql.query("SELECT pg_drop_replication_slot(%s)", source.slot)
    postgresql.execute("INSERT INTO items VALUES (1)")
    assert "was dropped" in _gap(postgresql, position)


def test_a_slot_that_was_made_anew_or_moved_ahead_is_a_gap(postgresql: Database) -> None:
    position = _position(postgresql)
    postgresql.execute("INSERT INTO items VALUES (1)")
    with PostgresSource(postgresql.url, ["items"]) as source:
        postgresql.query(
            "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", source.slot
        )
    assert "moved ahead" in _gap(postgresql, position)


def test_a_publication_that_was_dropped_is_a_gap(postgresql: Database) -> None:
    position = _position(postgresql)
    with PostgresSource(postgresql.url, ["items"]) as source:
        postgresql.execute(f"DROP PUBLICATION {source.publication}")
    postgresql.execute("INSERT INTO items VALUES (1)")
    assert "publication" in _gap(postgresql, position)


def test_another_server_is_a_gap(postgresql: Database) -> None:
    position = Position.parse(_position(postgresql))
    other = str(Position(position.lsn, "1234567890", position.timeline))
    assert "another server" in _gap(postgresql, other)


def test_a_server_whose_log_ends_before_the_position_is_a_gap(postgresql: Database) -> None:
    position = Position.parse(_position(postgresql))
    ahead = str(Position(position.lsn + (1 << 40), position.system, position.timeline))
    assert "ends at" in _gap(postgresql, ahead)


def test_log_that_the_server_has_removed_is_a_gap() -> None:
    small = ("max_slot_wal_keep_size=1MB", "max_wal_size=32MB", "min_wal_size=32MB")
    with Postgresql.running(*small) as server, server.database() as database:
        position = _position(database)
        lost = "SELECT wal_status FROM pg_replication_slots"
        database.execute("CREATE TABLE much (t text)")
        for _ in range(6):
            database.execute(
                "INSERT INTO much SELECT repeat('x', 1000) FROM generate_series(1, 16000)",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
        assert database.query(lost) == [("lost",)]
        assert "removed WAL" in _gap(database, position)


def test_a_promotion_is_a_gap_only_if_what_was_read_came_after_it() -> None:
    with Postgresql.running() as server, server.database() as database:
        first = _position(database)
        database.execute("INSERT INTO items VALUES (1)")
        with PostgresSource(database.url, ["items"]) as source:
            head = source.state(None).head
        server.stop()
        # Recovery from an archive that has nothing ends in a new timeline.
        (server.data / "recovery.signal").touch()
        server.settings = ("restore_command=false",)
        server.start()
        wait_until(lambda: database.query("SELECT pg_is_in_recovery()") == [(False,)])
        ahead = Position.parse(head)
        beyond = str(Position(ahead.lsn + (1 << 30), ahead.system, ahead.timeline))
        with PostgresSource(database.url, ["items"]) as source:
            source.attach()
            gap = source.begin(beyond)
            assert gap is not None and "promoted" in gap.reason
            assert source.begin(first) is None
            (transaction,) = read_all(source)
            assert [change.key for change in transaction.changes] == [(b"1",)]
            assert Position.parse(transaction.position).timeline == 2


def test_a_server_that_took_over_owes_nothing_that_only_the_last_one_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.cdc.postgres.source._PATIENCE", 0)
    with Postgresql.running() as server, server.database() as database:
        database.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'a')")
        with PostgresSource(database.url, ["items"]) as source:
            source.attach()
        server.stop()
        standby = server.data.with_name("standby")
        server.run(["/bin/cp", "-a", str(server.data), str(standby)])
        server.start()
        with PostgresSource(database.url, ["items"]) as source:
            assert source.begin(None) is None
            (table,) = source.tables()
            database.execute("UPDATE items SET name = 'lost'")
            (lost,) = read_all(source)
            first = source.chunk(table, None, 1)
            assert source._ahead._asked is not None
            assert source._ahead._asked.found.result() is not None
            database.execute("UPDATE items SET name = 'lost, too'")
            (lost,) = read_all(source)

            server.kill()
            server.run(["/bin/mv", str(server.data), str(server.data.with_name("gone"))])
            server.run(["/bin/mv", str(standby), str(server.data)])
            (server.data / "recovery.signal").touch()
            server.settings = ("restore_command=false",)
            server.start()
            wait_until(lambda: database.query("SELECT pg_is_in_recovery()") == [(False,)])
            with pytest.raises(SourceUnavailable):
                source.begin(lost.position)
            gap = source.begin(lost.position)
            assert gap is not None and "promoted" in gap.reason
            assert source.begin(None) is None
            assert list(source.chunk(table, first.last, 1).rows) == [(b"2", b"a")]


def test_a_server_that_is_killed_and_comes_back_has_lost_and_repeated_nothing() -> None:
    with Postgresql.running() as server, server.database() as database:
        database.execute(ITEMS)
        with PostgresSource(database.url, ["items"]) as source:
            source.attach()
            assert source.begin(None) is None
            found: list[SourceTransaction] = []
            position: str | None = None
            for number in range(1, 4):
                database.execute(
                    *(f"INSERT INTO items VALUES ({number}{n})" for n in range(10, 20))
                )
                if number % 2:
                    found += read_all(source)
                    source.acknowledge(position := found[-1].position)
                server.kill()
                with pytest.raises(SourceUnavailable):
                    while True:
                        read = [one for one in source.read(0.1) if one.changes]
                        found += read
                        position = read[-1].position if read else position
                with pytest.raises(SourceUnavailable):
                    source.begin(position)
                server.start()
                assert source.begin(position) is None
            found += read_all(source)
    keys = [change.key for one in found for change in one.changes]
    assert keys == [(b"%d%d" % (n, m),) for n in range(1, 4) for m in range(10, 20)]
