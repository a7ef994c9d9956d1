"""What PostgreSQL refuses is said in words, with what to do, and without the password."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headrace.cdc.postgres.source import PostgresSource
from headrace.errors import HeadraceError, SourceError, SourceUnavailable, UserError
from headrace.servers.java import ports
from tests.postgres import changes, reading
from tests.servers.postgresql import Database, Postgresql

pytestmark = pytest.mark.service

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
SECRET = "s3cret"


@pytest.fixture
def role(postgresql: Database) -> Iterator[str]:
    """A role with a password that may log in and nothing else."""
    name = f"role_{postgresql.name}"
    postgresql.execute(ITEMS, f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    yield name
    postgresql.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def _as(role: str, database: Database, password: str = SECRET) -> PostgresSource:
    return PostgresSource(f"postgresql://{role}:{password}@{database.place}", ["items"])


def _refused(source: PostgresSource, kind: type[HeadraceError], *words: str) -> None:
    with source, pytest.raises(kind) as raised:
        source.attach()
        source.begin(None)
    text = str(raised.value)
    for word in words:
        assert word in text
    assert SECRET not in text and "wr0ng" not in text


def test_a_wrong_password(postgresql: Database, role: str) -> None:
    _refused(_as(role, postgresql, "wr0ng"), UserError, "password authentication failed", role)
    source = PostgresSource(f"postgresql://{role}@{postgresql.place}", ["items"])
    _refused(source, UserError, "wants a password", "~/.pgpass")


def test_an_unknown_database_or_role(postgresql: Database) -> None:
    place = postgresql.place
    source = PostgresSource(f"postgresql://postgres@{place}_not", ["items"])
    _refused(source, UserError, "does not exist")


def test_a_role_without_replication_is_told_the_statement(postgresql: Database, role: str) -> None:
    _refused(_as(role, postgresql), UserError, f'ALTER ROLE "{role}" REPLICATION')


def test_a_role_that_may_not_read_a_table_is_told_the_grant(
    postgresql: Database, role: str
) -> None:
    postgresql.execute(f"ALTER ROLE {role} REPLICATION")
    _refused(_as(role, postgresql), UserError, f'GRANT SELECT ON "public"."items" TO "{role}"')


def test_a_role_that_owns_nothing_captures_what_the_owner_has_published(
    postgresql: Database, role: str
) -> None:
    postgresql.execute(f"ALTER ROLE {role} REPLICATION", f"GRANT SELECT ON items TO {role}")
    _refused(_as(role, postgresql), UserError, "CREATE PUBLICATION", "FOR TABLE", "as the owner")
    with _as(role, postgresql) as source:
        postgresql.execute(
            f"CREATE PUBLICATION {source.publication} FOR TABLE items "
            "WITH (publish_via_partition_root = true)"
        )
        source.attach()
        assert source.begin(None) is None
        source.state(None)


def test_a_table_without_a_primary_key(postgresql: Database) -> None:
    postgresql.execute("CREATE TABLE items (id int)")
    source = PostgresSource(postgresql.url, ["items"])
    _refused(source, UserError, "public.items has no primary key", "ADD PRIMARY KEY")


def test_a_key_that_is_not_written_to_the_log(postgresql: Database) -> None:
    postgresql.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY NOTHING")
    source = PostgresSource(postgresql.url, ["items"])
    _refused(source, UserError, 'ALTER TABLE "public"."items" REPLICA IDENTITY DEFAULT')


def test_a_key_that_is_deferrable(postgresql: Database) -> None:
    postgresql.execute("CREATE TABLE items (id int PRIMARY KEY DEFERRABLE)")
    _refused(PostgresSource(postgresql.url, ["items"]), UserError, "REPLICA IDENTITY FULL")
    postgresql.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    with reading(postgresql, "items"):
        postgresql.execute("INSERT INTO items VALUES (1)", "DELETE FROM items")


def test_an_unlogged_table(postgresql: Database) -> None:
    postgresql.execute("CREATE UNLOGGED TABLE items (id int PRIMARY KEY)")
    _refused(PostgresSource(postgresql.url, ["items"]), UserError, "unlogged", "SET LOGGED")


def test_an_unknown_table_with_the_nearest_one(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    _refused(PostgresSource(postgresql.url, ["public.item"]), UserError, "'public.items'")


def test_a_server_that_is_down_can_be_tried_again() -> None:
    (port,) = ports.free(1)
    source = PostgresSource(f"postgresql://me:{SECRET}@127.0.0.1:{port}/shop", ["items"])
    _refused(source, SourceUnavailable, "does not answer", "Connection refused")


def test_a_slot_that_another_program_reads_is_not_taken_from_it(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    other = PostgresSource(f"{postgresql.url}?application_name=other", ["items"])
    with other:
        other.attach()
        assert other.begin(None) is None
        source = PostgresSource(postgresql.url, ["items"])
        _refused(source, SourceUnavailable, "another reader of the slot", "is active for PID")
        source = PostgresSource(postgresql.url, ["items"])
        with source, pytest.raises(SourceUnavailable, match="still has a reader"):
            source.detach()
        other.read(0)


def test_a_newer_capture_takes_the_slot_over_from_an_older_one(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as older, reading(postgresql, "items") as newer:
        postgresql.execute("INSERT INTO items VALUES (1)")
        assert [change.key for change in changes(newer)] == [(b"1",)]
        with pytest.raises(SourceUnavailable, match="ended the connection"):
            older.read(1)


def test_a_slot_of_another_plugin_is_left_alone(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    source = PostgresSource(postgresql.url, ["items"])
    postgresql.query("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", source.slot)
    _refused(source, UserError, "belongs to somebody else", "test_decoding")


def test_a_name_that_no_slot_can_have(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    source = PostgresSource(postgresql.url, ["items"], slot="Not-A-Name")
    _refused(source, UserError, "cannot be the name of a slot", "small letters")


def test_an_open_transaction_keeps_a_slot_from_being_made_and_is_named(
    postgresql: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cdc.postgres.slot._PATIENCE", "300ms")
    postgresql.execute(ITEMS)
    with contextlib.closing(postgresql.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN; INSERT INTO items VALUES (1)")
        source = PostgresSource(postgresql.url, ["items"])
        _refused(source, SourceUnavailable, f"process {connection.get_backend_pid()}", "End them")


def test_a_server_without_logical_decoding_and_one_without_free_slots() -> None:
    with Postgresql.running("wal_level=replica") as server, server.database() as database:
        database.execute(ITEMS)
        source = PostgresSource(database.url, ["items"])
        _refused(source, UserError, "wal_level = replica", "ALTER SYSTEM SET wal_level = logical")
        server.stop()
        server.settings = ("max_replication_slots=1",)
        server.start()
        database.query("SELECT pg_create_logical_replication_slot('first', 'pgoutput')")
        source = PostgresSource(database.url, ["items"])
        _refused(source, UserError, "first (not read)", "max_replication_slots")


def test_an_error_of_the_stream_names_the_server_and_what_it_said(postgresql: Database) -> None:
    postgresql.execute(ITEMS)
    with reading(postgresql, "items") as source:
        postgresql.execute(f"DROP PUBLICATION {source.publication}")
        postgresql.execute("INSERT INTO items VALUES (1)")
        with pytest.raises(SourceError, match="without the publication"):
            while True:
                source.read(0.1)
