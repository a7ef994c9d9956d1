"""The laws of a store hold for PostgreSQL, and others can use its tables as their own."""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from psycopg2.extras import LoggingConnection

from headrace.errors import InvalidPipeline, InvalidSetting, StoreError, StoreUnavailable
from headrace.store.contract import Store, StoredView, StorePosition
from headrace.store.postgres import Postgres
from headrace.store.suite import StoreSuite, changes_of, rows_of
from tests.servers.postgresql import Database, Postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.service

SECRET = "hunter2-is-the-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    """A PostgreSQL of these tests alone, which they kill."""
    with Postgresql.running() as server:
        yield server


@pytest.fixture
def database(server: Postgresql) -> Iterator[Database]:
    with server.database() as database:
        yield database


class TestPostgres(StoreSuite):
    @pytest.fixture
    def store(self, server: Postgresql, database: Database) -> Store:
        self.server = server
        return Postgres(database.url)

    def outage(self, store: Store) -> contextlib.AbstractContextManager[None]:
        return _down(self.server)


@contextlib.contextmanager
def _down(server: Postgresql) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


ORDERS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("revision", pa.int64())])


def view(folder: Path, columns: pa.Schema = ORDERS, name: str = "orders") -> StoredView:
    return StoredView("shop", name, columns, ("id",), folder)


def fill(store: Store, view: StoredView, count: int, generation: str = "one") -> None:
    rows = [{**dict.fromkeys(view.columns.names, 1), "id": id} for id in range(count)]
    with store.beside(view) as built:
        built.fill([changes_of(view, rows, at=0)], StorePosition(generation, 5))
    store.switch(view)


def test_a_view_is_a_table_of_its_name_with_its_types(database: Database, tmp_path: Path) -> None:
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(8, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    orders = view(tmp_path, columns)
    store = Postgres(database.url)
    with store.beside(orders) as built:
        built.fill([], StorePosition("one", 0))
    store.switch(orders)
    found = database.query(
        "SELECT column_name, data_type, numeric_scale FROM information_schema.columns "
        "WHERE table_schema = 'shop' AND table_name = 'orders' ORDER BY ordinal_position"
    )
    assert found == [
        ("id", "bigint", 0),
        ("price", "numeric", 2),
        ("at", "timestamp with time zone", None),
        ("tags", "ARRAY", None),
    ]


def test_many_keys_are_looked_up_by_one_statement(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, orders, said = Postgres(database.url), view(tmp_path), io.StringIO()
    fill(store, orders, 500)

    class Logged(LoggingConnection):  # type: ignore[misc]  # psycopg2 has no types
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.initialize(said)

    monkeypatch.setattr(psycopg2, "connect", partial(psycopg2.connect, connection_factory=Logged))
    with store.live(orders) as live:
        keys = pa.table({"id": range(0, 1000, 2)})
        found = [id for batch in live.find(keys) for id in batch.column("id").to_pylist()]
    assert sorted(found) == list(range(0, 500, 2))
    assert said.getvalue().count('FROM "shop"."orders"') == 1


def test_what_others_add_to_a_table_stays_when_it_is_built_again(
    database: Database, tmp_path: Path
) -> None:
    store, orders = Postgres(database.url), view(tmp_path)
    fill(store, orders, 3)
    database.execute(
        "CREATE VIEW big AS SELECT * FROM shop.orders WHERE n > 0",
        "CREATE INDEX by_n ON shop.orders (n)",
        "GRANT SELECT ON shop.orders TO PUBLIC",
    )
    fill(store, orders, 2, "two")
    assert database.query("SELECT count(*) FROM big") == [(2,)]
    assert database.query("SELECT count(*) FROM pg_indexes WHERE indexname = 'by_n'") == [(1,)]
    granted = "SELECT count(*) FROM information_schema.role_table_grants WHERE grantee = 'PUBLIC'"
    assert database.query(f"{granted} AND table_name = 'orders'") == [(1,)]
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'shop'"
    assert database.query(tables) == [(2,)]  # the view and the positions


def test_a_process_that_is_overtaken_while_it_writes_brings_no_row_back(
    database: Database, tmp_path: Path
) -> None:
    store, orders = Postgres(database.url), view(tmp_path)
    fill(store, orders, 2)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with contextlib.closing(database.connect()) as other, other.cursor() as cursor:
        # Another process is about to commit that a row is gone, and the position after it.
        cursor.execute("BEGIN")
        cursor.execute('UPDATE shop._headrace_position SET "offset" = 20')
        cursor.execute("DELETE FROM shop.orders WHERE id = 0")
        with store.live(orders) as live:
            late = changes_of(orders, [{"id": 0, "n": 9, "revision": 15}], at=15)
            writer = threading.Thread(target=live.apply, args=(late,))
            writer.start()
            wait_until(lambda: database.query(waiting) == [(1,)])
            cursor.execute("COMMIT")
            writer.join()
    with store.live(orders) as live:
        assert [row["id"] for row in rows_of(live)] == [1]
        assert live.position() == StorePosition("one", 20)


def test_other_columns_replace_the_table(database: Database, tmp_path: Path) -> None:
    store = Postgres(database.url)
    fill(store, view(tmp_path), 3)
    wider = view(tmp_path, ORDERS.append(pa.field("more", pa.int64())))
    fill(store, wider, 2, "two")
    assert database.query("SELECT sum(more) FROM shop.orders") == [(2,)]
    database.execute("CREATE VIEW sums AS SELECT sum(more) FROM shop.orders")
    with pytest.raises(StoreError, match="other objects depend on it"):
        fill(store, view(tmp_path), 3, "three")
    assert database.query("SELECT * FROM sums") == [(2,)]


def test_a_table_of_others_is_never_replaced(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE SCHEMA shop", "CREATE TABLE shop.orders (precious text)")
    with pytest.raises(StoreError, match="which headrace has not made"):
        fill(Postgres(database.url), view(tmp_path), 1)
    fill(Postgres(database.url, schema="views"), view(tmp_path), 4)
    assert database.query("SELECT count(*) FROM views.orders") == [(4,)]


def test_a_table_that_somebody_has_dropped_is_built_again(
    database: Database, tmp_path: Path
) -> None:
    store, orders = Postgres(database.url), view(tmp_path)
    fill(store, orders, 3)
    database.execute("DROP TABLE shop.orders")
    with store.live(orders) as live:
        assert live.position() is None
        assert rows_of(live) == []
    fill(store, orders, 2)
    with store.live(orders) as live:
        assert len(rows_of(live)) == 2


def test_readers_are_not_blocked_by_a_switch(database: Database, tmp_path: Path) -> None:
    store, orders = Postgres(database.url), view(tmp_path)
    fill(store, orders, 3)
    with contextlib.closing(database.connect()) as reader, reader.cursor() as cursor:
        reader.autocommit = False
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM shop.orders")
        assert cursor.fetchone() == (3,)
        fill(store, orders, 7, "two")  # it would wait for the reader, who keeps his lock
        cursor.execute("SELECT count(*) FROM shop.orders")
        assert cursor.fetchone() == (3,)
        reader.commit()
        cursor.execute("SELECT count(*) FROM shop.orders")
        assert cursor.fetchone() == (7,)


def test_a_process_whose_version_was_replaced_writes_nothing(
    database: Database, tmp_path: Path
) -> None:
    store, orders = Postgres(database.url), view(tmp_path)
    fill(store, orders, 2)
    with store.beside(orders) as zombie:
        with store.beside(orders) as built:
            with pytest.raises(StoreError, match="another process"):
                zombie.fill([changes_of(orders, [], at=0)], StorePosition("old", 99))
            built.fill([], StorePosition("new", 6))
        store.switch(orders)
        with pytest.raises(StoreError, match="another process"):
            zombie.apply(changes_of(orders, [], at=100, generation="old"))
    with store.live(orders) as live:
        assert live.position() == StorePosition("new", 6)


def test_a_wrong_password_is_told_in_words(database: Database, tmp_path: Path) -> None:
    role = f"{database.name}_role"
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
    store = Postgres(f"postgresql://{role}:{SECRET}@{database.place}")
    with pytest.raises(StoreError, match="refused the login") as refused:
        store.live(view(tmp_path))
    assert not isinstance(refused.value, StoreUnavailable)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(store) + store.address
    with pytest.raises(StoreError, match="GRANT CREATE ON DATABASE") as refused:
        Postgres(f"postgresql://{role}:right@{database.place}").live(view(tmp_path))
    assert role in str(refused.value)
    database.execute(f"DROP ROLE {role}")


def test_a_database_that_is_not_there_is_told_in_words(server: Postgresql, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        Postgres(server.url("nowhere")).live(view(tmp_path))


def test_a_value_that_postgresql_cannot_hold_is_told_in_words(
    database: Database, tmp_path: Path
) -> None:
    orders = view(tmp_path, pa.schema([("id", pa.int64()), ("note", pa.string())]))
    with Postgres(database.url).beside(orders) as built:
        rows = [{"id": 1, "note": "a\0b"}]
        with pytest.raises(StoreError, match="invalid byte sequence"):
            built.fill([changes_of(orders, rows, at=0)], StorePosition("one", 1))


def test_names_that_postgresql_would_cut_are_refused(tmp_path: Path) -> None:
    store = Postgres("postgresql://host/database")
    with pytest.raises(InvalidPipeline, match="longer than a name"):
        store.check(view(tmp_path, name="v" * 64))
    with pytest.raises(InvalidPipeline, match="cannot be kept"):
        store.check(view(tmp_path, name="_headrace_position"))
    with pytest.raises(InvalidSetting, match="not the address"):
        Postgres("nonsense with spaces")


def test_a_store_can_be_pickled() -> None:
    store = Postgres(f"postgresql://me:{SECRET}@host:5/shop", schema="s")
    assert pickle.loads(pickle.dumps(store)) == store
    assert store.address == "postgresql://host:5/shop"
