"""Changes of a real MariaDB: types, transactions, chunks, gaps, and what it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.cdc.contract import Change, SourceTransaction, Table
from headrace.cdc.mysql.source import MySqlSource
from headrace.errors import (
    InvalidSetting,
    SourceError,
    SourceGap,
    SourceUnavailable,
    UserError,
)
from tests.servers.mariadb import Database, Mariadb
from tests.waiting import wait_until

pytestmark = pytest.mark.service

_ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, what varchar(50), price decimal(10,2))"
_LINES = "CREATE TABLE `lines` (id int, line int, note text, PRIMARY KEY (id, line))"


@contextlib.contextmanager
def capturing(database: Database, *tables: str, **settings: Any) -> Iterator[MySqlSource]:
    """A source that reads from now on."""
    with MySqlSource(database.url, tables or ("orders",), **settings) as source:
        source.attach()
        assert source.begin(None) is None
        yield source


def transactions(source: MySqlSource, count: int = 1) -> list[SourceTransaction]:
    """The next transactions that change something."""
    found: list[SourceTransaction] = []

    def enough() -> bool:
        found.extend(one for one in source.read(0.1) if one.changes)
        return len(found) >= count

    wait_until(enough)
    assert len(found) == count
    return found


def changes(source: MySqlSource, count: int = 1) -> list[Change]:
    """The changes of the next transactions."""
    return [change for one in transactions(source, count) for change in one.changes]


def brief(found: list[Change]) -> list[tuple[Any, ...]]:
    return [(one.op, one.table.name, one.key) for one in found]


@pytest.fixture
def shop(mariadb: Database) -> Database:
    """A database with two tables."""
    mariadb.execute(_ORDERS, _LINES)
    return mariadb


def test_a_transaction_is_whole_across_tables_and_comes_when_it_is_committed(
    shop: Database,
) -> None:
    with capturing(shop, "orders", "lines") as source:
        with contextlib.closing(shop.connect()) as writer, writer.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO orders VALUES (1, 'tea', 1.5), (2, 'milk', 2)")
            shop.execute("INSERT INTO orders VALUES (3, 'first', 0)")
            cursor.execute("INSERT INTO `lines` VALUES (1, 1, 'x')")
            cursor.execute("UPDATE orders SET price = 3 WHERE id = 1")
            cursor.execute("DELETE FROM orders WHERE id = 2")
            cursor.execute("COMMIT")
        first, second = transactions(source, 2)
        assert brief(list(first.changes)) == [("c", "orders", (3,))]
        assert brief(list(second.changes)) == [
            ("c", "orders", (1,)),
            ("c", "orders", (2,)),
            ("c", "lines", (1, 1)),
            ("u", "orders", (1,)),
            ("d", "orders", (2,)),
        ]
        update = second.changes[3]
        assert (update.before, update.after) == ((1, "tea", "1.50"), (1, "tea", "3.00"))
        assert second.changes[4].before == (2, "milk", "2.00")
        assert second.whole and second.at and second.id in second.position


def test_what_was_rolled_back_does_not_come(shop: Database) -> None:
    with capturing(shop) as source:
        with contextlib.closing(shop.connect()) as writer, writer.cursor() as cursor:
            for statement in (
                "BEGIN",
                "INSERT INTO orders VALUES (1, 'no', 0)",
                "ROLLBACK",
                "BEGIN",
                "INSERT INTO orders VALUES (2, 'yes', 0)",
                "SAVEPOINT here",
                "INSERT INTO orders VALUES (3, 'no', 0)",
                "ROLLBACK TO here",
                "INSERT INTO orders VALUES (4, 'yes', 0)",
                "COMMIT",
            ):
                cursor.execute(statement)
        assert brief(changes(source)) == [("c", "orders", (2,)), ("c", "orders", (4,))]


def test_a_changed_key_is_a_delete_and_a_create(shop: Database) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    with capturing(shop) as source:
        shop.execute("UPDATE orders SET id = 9")
        deleted, created = changes(source)
        assert (deleted.op, deleted.key, deleted.before) == ("d", (1,), (1, "tea", "1.00"))
        assert (created.op, created.key, created.after) == ("c", (9,), (9, "tea", "1.00"))


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE orders",
        "DROP TABLE orders",
        _ORDERS.replace("TABLE", "OR REPLACE TABLE"),
    ],
)
def test_a_table_that_is_emptied_as_a_whole_is_truncated(shop: Database, statement: str) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    with capturing(shop) as source:
        shop.execute(statement)
        (change,) = changes(source)
        assert (change.op, change.table.name, change.key) == ("t", "orders", ())


_TYPES = """CREATE TABLE types (
    id bigint unsigned PRIMARY KEY, flag tinyint(1), tiny tinyint unsigned, small smallint,
    middle mediumint, large mediumint unsigned, single float, twice double, money decimal(20,5),
    huge decimal(65,30), bit1 bit(1), bit12 bit(12), bit64 bit(64), choice enum('a','it''s','ø'),
    old enum('ø','b') CHARACTER SET latin1, some set('x','y','z'), doc json, born year,
    clock time(3), clock2 time(2), plain time, day date, at6 datetime(6), at2 datetime(2),
    at0 datetime, stamp timestamp(3) NULL, data blob, words text, wide varchar(300),
    western varchar(20) CHARACTER SET latin1, utf16 varchar(5) CHARACTER SET utf16,
    japanese varchar(5) CHARACTER SET sjis, collated varchar(9) COLLATE utf8mb4_uca1400_ai_ci,
    bytes varbinary(20), padded binary(8), fixed char(5), label uuid, host inet6, old_host inet4,
    place geometry, sum int AS (flag + 1) VIRTUAL, kept int AS (flag + 2) STORED,
    hidden int INVISIBLE DEFAULT 5)"""

_VALUES = """INSERT INTO types (id, flag, tiny, small, middle, large, single, twice, money, huge,
    bit1, bit12, bit64, choice, old, some, doc, born, clock, clock2, plain, day, at6, at2, at0,
    stamp, data, words, wide, western, utf16, japanese, collated, bytes, padded, fixed, label, host,
    old_host, place)
    VALUES (18446744073709551615, 5, 255, -32768, -8388608, 16777215, 0.1, 1e300, -12345.678,
    -1.000000000000000000000000000001, 1, b'101010101010', ~0, 'it''s', 'ø', 'x,z', '{"a": 1.50}',
    0, '-838:59:59.999', '-00:00:00.5', '-12:30:00', '0000-00-00', '9999-12-31 23:59:59.999999',
    '2024-02-29 01:02:03.04', '2024-00-15 00:00:00', '2024-03-31 01:30:00.123', 'a\\0b', 'täxt',
    'wide', _latin1 x'80818de9', 'añ', '日本', 'ß', x'00ff00', x'6100', 'ab ',
    '123e4567-e89b-42d3-a456-426655440000', '1::2', '1.2.3.4', POINT(1, 2))"""


@pytest.fixture
def types(mariadb: Database) -> Database:
    """A database with a table that has a column of each type."""
    mariadb.execute(_TYPES)
    return mariadb


def in_any_mode(database: Database, *statements: str) -> None:
    """Run statements where impossible days and labels are stored, as old servers do."""
    with contextlib.closing(database.connect()) as writer, writer.cursor() as cursor:
        for statement in ("SET sql_mode = ''", "SET NAMES utf8mb4", *statements):
            cursor.execute(statement)


def test_each_type_has_the_same_value_in_the_binlog_as_in_a_snapshot(types: Database) -> None:
    with capturing(types, "types") as source:
        in_any_mode(
            types,
            _VALUES,
            "INSERT INTO types (id, choice, some, at0, stamp) VALUES (1, 'none', '', 0, 0)",
            "INSERT INTO types (id) VALUES (2)",
        )
        streamed = {one.key: one.after for one in changes(source, 3)}
        (table,) = source.tables()
        rows = source.chunk(table, None, 10).rows
        assert {table.key_of(row): row for row in rows} == streamed
        # The description in the binlog makes the same table as the server's own.
        assert next(iter(streamed)) and table.columns.equals(source.tables()[0].columns)


def test_each_type_becomes_its_exact_value_in_arrow(types: Database) -> None:
    with capturing(types, "types") as source:
        in_any_mode(types, _VALUES)
        (change,) = changes(source)
        assert change.table is source.tables()[0]
        values = source.columns(change.table.columns, [change.after, None])
        assert values.is_valid().to_pylist() == [True, False]
        columns = {field.name: values.field(field.name)[0] for field in values.type}
        # A time with a zone takes Python seconds to show, since it loads pandas for it.
        stamp = columns.pop("stamp")
        assert str(stamp.type) == "timestamp[us, tz=UTC]"
        assert stamp.value == 1_711_848_600_123_000
        found = {name: str(value) for name, value in columns.items()}
        assert found["id"] == found["bit64"] == "18446744073709551615"
        assert found["flag"] == "5" and found["bit1"] == "True" and found["bit12"] == "2730"
        assert found["money"] == "-12345.67800"
        assert found["huge"] == "-1.000000000000000000000000000001"
        assert (found["single"], found["twice"]) == ("0.10000000149011612", "1e+300")
        assert (found["choice"], found["old"], found["some"]) == ("it's", "ø", "x,z")
        assert (found["doc"], found["born"]) == ('{"a": 1.50}', "0")
        assert (found["clock"], found["clock2"]) == ("-838:59:59.999", "-00:00:00.50")
        assert found["at6"] == "9999-12-31 23:59:59.999999"
        assert (found["western"], found["utf16"], found["japanese"]) == ("€\x81\x8dé", "añ", "日本")
        assert (found["bytes"], found["fixed"]) == ("b'\\x00\\xff\\x00'", "ab")
        assert found["padded"] == "b'a\\x00\\x00\\x00\\x00\\x00\\x00\\x00'"
        assert found["label"] == "123e4567-e89b-42d3-a456-426655440000"
        assert (found["host"], found["old_host"]) == ("1::2", "1.2.3.4")
        assert (found["sum"], found["kept"], found["hidden"]) == ("6", "7", "5")
        # No calendar has these days.
        assert found["day"] == found["at0"] == "None"


def test_a_copy_made_again_from_arrow_gives_the_same_arrow(types: Database) -> None:
    with capturing(types, "types") as source:
        in_any_mode(types, _VALUES)
        (change,) = changes(source)
        values = source.columns(change.table.columns, [change.after, None])
        again = source.rows(change.table.columns, values)
        assert again[1] is None
        assert source.columns(change.table.columns, again) == values


def test_changed_columns_are_seen_where_they_changed(shop: Database) -> None:
    with capturing(shop) as source:
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            "ALTER TABLE orders ADD COLUMN paid boolean DEFAULT false FIRST",
            "INSERT INTO orders VALUES (true, 2, 'milk', 2)",
            "ALTER TABLE orders DROP COLUMN what, CHANGE price cost double",
            "UPDATE orders SET cost = 9.25 WHERE id = 1",
        )
        found = changes(source, 3)
        assert [one.table.columns.names for one in found] == [
            ["id", "what", "price"],
            ["paid", "id", "what", "price"],
            ["paid", "id", "cost"],
        ]
        assert [one.after for one in found] == [
            (1, "tea", "1.00"),
            (1, 2, "milk", "2.00"),
            (0, 1, 9.25),
        ]
        assert found[2].key == (1,)


def test_a_chunk_continues_after_the_last_key(shop: Database) -> None:
    rows = ", ".join(f"({id}, {line}, 'n')" for id in range(3) for line in range(3))
    shop.execute(f"INSERT INTO `lines` VALUES {rows}")
    with capturing(shop, "lines") as source:
        (table,) = source.tables()
        keys, after, sizes = [], None, []
        while True:
            chunk = source.chunk(table, after, 2)
            keys += [table.key_of(row) for row in chunk.rows]
            sizes.append(len(chunk.rows))
            if (after := chunk.last) is None:
                break
        assert keys == [(id, line) for id in range(3) for line in range(3)]
        assert sizes == [2, 2, 2, 2, 1]


_KEYS = {
    "bigint unsigned": ["1", "9", "10", "9223372036854775807", "18446744073709551615"],
    "decimal(30,2)": ["-3", "-1.5", "2", "10"],
    "enum('z','b','a')": ["'z'", "'b'", "'a'"],
    "set('z','a')": ["'z'", "'a'", "'z,a'"],
    "datetime(3)": ["'2024-01-01'", "'2024-01-01 00:00:00.5'"],
    "varchar(9)": ["'a'", "'B'", "'c'", "'d%%'"],
    "varbinary(4)": ["x'00'", "x'27'", "x'ff00'"],
    "bit(64)": ["1", "~0"],
    "float": ["-0.1", "0.1", "0.3"],
}


def test_a_snapshot_follows_the_order_of_any_key(mariadb: Database) -> None:
    for place, (kind, values) in enumerate(_KEYS.items()):
        rows = ", ".join(f"({value})" for value in values)
        mariadb.execute(
            f"CREATE TABLE keyed{place} (k {kind} PRIMARY KEY)",
            f"INSERT INTO keyed{place} VALUES {rows}",
        )
    with MySqlSource(mariadb.url) as source:
        for table, values in zip(source.tables(), _KEYS.values(), strict=True):
            found: list[Any] = []
            chunk = source.chunk(table, None, 1)
            while chunk.last is not None:
                found += chunk.rows
                chunk = source.chunk(table, chunk.last, 1)
            assert found == list(source.chunk(table, None, 99).rows)
            assert len(found) == len(values)


def test_a_chunk_sees_what_came_before_it_and_nothing_later(shop: Database) -> None:
    with capturing(shop) as source:
        shop.execute("INSERT INTO orders VALUES (1, 'before', 1)")
        (table,) = source.tables()
        chunk = source.chunk(table, None, 10)
        shop.execute("INSERT INTO orders VALUES (2, 'after', 1)")
        before, after = transactions(source, 2)
        assert [row[0] for row in chunk.rows] == [1]
        assert chunk.sees(before) and not chunk.sees(after)
        assert source.passed(before.position, chunk.high)


def test_a_quiet_source_passes_the_mark_of_a_chunk(shop: Database, mariadb: Database) -> None:
    with capturing(shop) as source:
        (table,) = source.tables()
        mariadb.execute("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)")
        chunk = source.chunk(table, None, 10)

        def passed() -> bool:
            return any(source.passed(one.position, chunk.high) for one in source.read(0.1))

        wait_until(passed)


def test_a_large_transaction_comes_in_parts_and_begins_again_where_it_began(
    shop: Database,
) -> None:
    with capturing(shop, part_bytes=10_000) as source:
        shop.execute("INSERT INTO orders VALUES (0, 'first', 0)")
        start = transactions(source)[0].position
        values = ", ".join(f"({id}, '{'x' * 40}', 1)" for id in range(1, 2001))
        shop.execute(f"INSERT INTO orders VALUES {values}")
        parts: list[SourceTransaction] = []
        while not parts or not parts[-1].whole:
            parts += [one for one in source.read(0.1) if one.changes]
        assert len(parts) > 2 and len({part.id for part in parts}) == 1
        assert [part.whole for part in parts] == [False] * (len(parts) - 1) + [True]
        assert {part.position for part in parts[:-1]} == {start}
        assert [c.key for part in parts for c in part.changes] == [(i,) for i in range(1, 2001)]
        assert source.begin(parts[0].position) is None
        again: list[Change] = []
        while len(again) < 2000:
            again += [change for one in source.read(0.1) for change in one.changes]
        assert [change.key for change in again] == [(i,) for i in range(1, 2001)]


def test_a_transaction_that_ends_where_a_part_is_full_has_a_last_part(shop: Database) -> None:
    with (
        contextlib.closing(shop.connect()) as writer,
        writer.cursor() as cursor,
        capturing(shop, "lines", part_bytes=1_000) as source,
    ):
        for size in (400, 2_000):
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO `lines` VALUES (%s, 1, REPEAT('x', 1500))", (size,))
            cursor.execute("INSERT INTO `lines` VALUES (%s, 2, REPEAT('x', %s))", (size, size))
            cursor.execute("COMMIT")
            parts = transactions(source, 2)
            assert [(len(part.changes), part.whole) for part in parts] == [(1, False), (1, True)]


def test_reading_goes_on_after_a_position(shop: Database) -> None:
    with capturing(shop) as source:
        shop.execute(*(f"INSERT INTO orders VALUES ({id}, 'x', 1)" for id in range(5)))
        found = transactions(source, 5)
    with MySqlSource(shop.url, ["orders"]) as source:
        assert source.begin(found[1].position) is None
        assert transactions(source, 3) == found[2:]


def test_the_state_counts_the_bytes_that_were_not_read(shop: Database) -> None:
    with capturing(shop) as source:
        start = source.state(None).head
        assert source.state(start).lag == 0
        shop.execute("INSERT INTO orders VALUES (1, 'x', 1)")
        state = source.state(start)
        assert state.lag > 0 and state.unit == "bytes" and state.head != start
        assert "MariaDB" in state.facts["server"]


def test_rows_that_are_logged_as_statements_are_a_gap(shop: Database) -> None:
    with capturing(shop) as source:
        with contextlib.closing(shop.connect()) as writer, writer.cursor() as cursor:
            cursor.execute("SET binlog_format = 'STATEMENT'")
            cursor.execute("INSERT INTO orders VALUES (1, 'unseen', 1)")
        with pytest.raises(SourceGap, match="as a statement"):
            wait_until(lambda: any(one.changes for one in source.read(0.1)))


def test_rows_that_a_rename_brings_are_a_gap(shop: Database) -> None:
    shop.execute("CREATE TABLE fresh LIKE orders", "INSERT INTO fresh VALUES (1, 'unseen', 1)")
    with capturing(shop) as source:
        shop.execute("RENAME TABLE orders TO gone, fresh TO orders")
        with pytest.raises(SourceGap, match="orders other rows"):
            wait_until(lambda: any(one.changes for one in source.read(0.1)))


def test_a_transaction_of_two_phases_is_refused(shop: Database) -> None:
    with (
        contextlib.closing(shop.connect()) as writer,
        writer.cursor() as cursor,
        capturing(shop) as source,
    ):
        for statement in (
            "XA START 'x'",
            "INSERT INTO orders VALUES (1, 'x', 1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            cursor.execute(statement)
        with pytest.raises(SourceError, match="prepared with XA"):
            wait_until(lambda: any(one.changes for one in source.read(0.1)))
        cursor.execute("XA COMMIT 'x'")


def test_an_image_without_all_columns_is_filled_in_or_refused(shop: Database) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    with capturing(shop) as source:
        with contextlib.closing(shop.connect()) as writer, writer.cursor() as cursor:
            cursor.execute("SET binlog_row_image = 'MINIMAL'")
            cursor.execute("UPDATE orders SET price = 2")
            (update,) = changes(source)
            assert update.before is None and update.key == (1,)
            assert update.after is not None and update.after[2] == "2.00"
            assert str(update.after[1]) == "Unsent.UNCHANGED"
            cursor.execute("INSERT INTO orders (id) VALUES (2)")
        with pytest.raises(SourceError, match="only some columns"):
            wait_until(lambda: any(one.changes for one in source.read(0.1)))


@pytest.mark.parametrize(
    ("made", "said", "hint"),
    [
        ("(id int)", "has no primary key", "ADD PRIMARY KEY"),
        ("(id int PRIMARY KEY) ENGINE=MyISAM", "storage engine MyISAM", "ENGINE=InnoDB"),
        ("(id int PRIMARY KEY) WITH SYSTEM VERSIONING", "keeps its own history", "out"),
        ("(id int PRIMARY KEY, x text COMPRESSED)", "'x' of .* is compressed", "COMPRESSED"),
        (
            "(id int PRIMARY KEY, o int, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
            "ON DELETE CASCADE",
            "RESTRICT",
        ),
    ],
)
def test_a_table_that_cannot_be_captured_says_why(
    shop: Database, made: str, said: str, hint: str
) -> None:
    shop.execute(f"CREATE TABLE refused {made}")
    with MySqlSource(shop.url, ["refused"]) as source:
        with pytest.raises(UserError, match=said) as caught:
            source.attach()
        assert hint in caught.value.hint


def test_a_table_that_becomes_impossible_stops_with_the_reason(shop: Database) -> None:
    with capturing(shop) as source:
        shop.execute("ALTER TABLE orders DROP PRIMARY KEY")
        with pytest.raises(UserError, match="no primary key"):
            wait_until(lambda: any(one.changes for one in source.read(0.1)))


def test_new_tables_of_a_whole_schema_are_captured(shop: Database) -> None:
    with MySqlSource(shop.url) as source:
        source.attach()
        source.begin(None)
        shop.execute("CREATE TABLE new (id int PRIMARY KEY)", "INSERT INTO new VALUES (1)")
        assert brief(changes(source)) == [("c", "new", (1,))]


def test_a_table_that_is_not_there_is_named(shop: Database) -> None:
    with MySqlSource(shop.url, ["orders", "missing"]) as source:
        with pytest.raises(InvalidSetting, match=rf"no table '{shop.name}\.missing'") as caught:
            source.attach()
        assert f"{shop.name}.orders" in caught.value.hint


def granted(database: Database, *rights: str) -> str:
    """The address for a new user with these rights."""
    user = f"u_{database.name[-12:]}"
    database.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'sesam-öffne-dich'")
    database.execute(*(f"GRANT {right} TO '{user}'@'%'" for right in rights))
    return f"mysql://{user}:sesam-%C3%B6ffne-dich@{database.place}"


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        (["BINLOG MONITOR ON *.*"], "REPLICATION SLAVE ON *.*"),
        (["REPLICATION SLAVE ON *.*"], "BINLOG MONITOR ON *.*"),
    ],
)
def test_a_missing_right_is_named_with_its_grant(
    shop: Database, rights: list[str], missing: str
) -> None:
    url = granted(shop, f"SELECT ON {shop.name}.*", *rights)
    with MySqlSource(url, ["orders"]) as source:
        with pytest.raises(UserError) as caught:
            source.attach()
        assert f"GRANT {missing}" in caught.value.hint


def test_the_rights_that_the_docs_name_are_enough(shop: Database) -> None:
    rights = (f"SELECT ON {shop.name}.*", "REPLICATION SLAVE, BINLOG MONITOR ON *.*")
    with MySqlSource(granted(shop, *rights), ["orders"]) as source:
        source.attach()
        assert source.begin(None) is None
        shop.execute("INSERT INTO orders VALUES (1, 'x', 1)")
        assert brief(changes(source)) == [("c", "orders", (1,))]
        assert len(source.chunk(source.tables()[0], None, 5).rows) == 1


def test_a_wrong_password_is_said_without_it(shop: Database) -> None:
    url = granted(shop, f"SELECT ON {shop.name}.*").replace("sesam", "geheim")
    with MySqlSource(url, ["orders"]) as source:
        with pytest.raises(UserError, match="refused the login") as caught:
            source.attach()
        assert "geheim" not in str(caught.value) + repr(caught.value.details) + repr(source.address)


@pytest.mark.parametrize(
    "url",
    ["mysql://u:geheim@host", "mysql://u:geheim@host:x/d", "http://u:geheim@h/d", "mysql://h/d",
     "mysql://u:geheim@h/d?nothing=1"],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidSetting, match="address of the source") as caught:
        MySqlSource(url, ["orders"])
    assert "geheim" not in str(caught.value)


@pytest.fixture(scope="module")
def own() -> Iterator[Mariadb]:
    """A server of this module, which its tests may break."""
    with Mariadb.running() as server:
        yield server


def restarted(server: Mariadb, *settings: str) -> None:
    """Start a server again with other settings."""
    server.kill()
    server.settings = settings
    server.start()


def failing(source: MySqlSource, kind: type[Exception]) -> Callable[[], bool]:
    def failed() -> bool:
        try:
            source.read(0.1)
        except kind:
            return True
        return False

    return failed


def begun(source: MySqlSource, position: str) -> Callable[[], bool]:
    def begins() -> bool:
        try:
            return source.begin(position) is None
        except SourceUnavailable:
            return False

    return begins


def test_a_setting_of_the_server_that_is_missing_is_named(own: Mariadb) -> None:
    for name, wrong, right in (
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("log_bin_compress", "ON", "OFF"),
    ):
        with own.database() as database, MySqlSource(database.url, ["orders"]) as source:
            database.execute(f"SET GLOBAL {name} = '{wrong}'")
            with pytest.raises(UserError, match=f"{name}={wrong}") as caught:
                source.attach()
            assert f"`{name}={right}`" in caught.value.hint
            database.execute(f"SET GLOBAL {name} = '{right}'")
    restarted(own, "--skip-log-bin")
    with (
        own.database() as database,
        MySqlSource(database.url, ["orders"]) as source,
        pytest.raises(UserError, match="log_bin=OFF"),
    ):
        source.attach()


def test_reading_goes_on_when_a_killed_server_is_back(own: Mariadb) -> None:
    restarted(own)
    with own.database() as database:
        database.execute(_ORDERS)
        with capturing(database) as source:
            database.execute("INSERT INTO orders VALUES (1, 'x', 1)")
            position = transactions(source)[0].position
            own.kill()
            wait_until(failing(source, SourceUnavailable))
            with pytest.raises(SourceUnavailable, match="does not answer"):
                source.begin(position)
            own.start()
            database.execute("INSERT INTO orders VALUES (2, 'x', 1)")
            wait_until(begun(source, position))
            assert brief(changes(source)) == [("c", "orders", (2,))]
            table: Table = source.tables()[0]
            assert len(source.chunk(table, None, 9).rows) == 2


def test_a_purged_binlog_is_a_gap(own: Mariadb) -> None:
    restarted(own)
    with own.database() as database:
        database.execute(_ORDERS)
        with capturing(database) as source:
            position = source.state(None).head
        database.execute("INSERT INTO orders VALUES (1, 'x', 1)", "FLUSH BINARY LOGS")
        ((last, *_),) = database.query("SHOW BINARY LOGS")[-1:]

        def purged() -> bool:
            # The server keeps files while it takes our reader, which is gone, to be there.
            database.execute(f"PURGE BINARY LOGS TO '{last}'")
            return len(database.query("SHOW BINARY LOGS")) == 1

        wait_until(purged)
        with MySqlSource(database.url, ["orders"]) as source:
            gap = source.begin(position)
            assert gap is not None and "purged" in gap.reason and gap.after == position
            assert source.begin(None) is None


def test_a_binlog_that_was_reset_is_a_gap(own: Mariadb) -> None:
    restarted(own)
    with own.database() as database:
        database.execute(_ORDERS, "RESET MASTER", "INSERT INTO orders VALUES (1, 'x', 1)")
        with capturing(database) as source:
            position = source.state(None).head
        # The same file and offset, after another transaction.
        with contextlib.closing(database.connect()) as writer, writer.cursor() as cursor:
            cursor.execute("RESET MASTER")
            cursor.execute("SET gtid_seq_no = 9")
            cursor.execute("INSERT INTO orders VALUES (2, 'x', 1)")
        with MySqlSource(database.url, ["orders"]) as source:
            assert source.state(None).head.split()[0] == position.split()[0]
            gap = source.begin(position)
            assert gap is not None and "another history" in gap.reason


def test_a_replica_that_takes_over_gives_what_comes_next(own: Mariadb) -> None:
    restarted(own)
    with own.database() as database, Mariadb.running("--server-id=2", "--log-slave-updates") as two:
        database.execute("RESET MASTER", _ORDERS.replace("TABLE ", f"TABLE {database.name}."))
        with contextlib.closing(two.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("RESET MASTER")
            cursor.execute(f"CREATE DATABASE {database.name}")
            cursor.execute(
                "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_USER='root', "
                f"MASTER_PORT={own.port}, MASTER_USE_GTID=slave_pos"
            )
            cursor.execute("RESET MASTER")
            cursor.execute("START SLAVE")
        other = Database(two, database.name)
        with capturing(database) as source:
            database.execute("INSERT INTO orders VALUES (1, 'x', 1)")
            position = transactions(source)[0].position
        database.execute("INSERT INTO orders VALUES (2, 'x', 1)")
        wait_until(
            lambda: other.query("SHOW TABLES") and len(other.query("SELECT * FROM orders")) == 2
        )
        other.execute("STOP SLAVE", "INSERT INTO orders VALUES (3, 'x', 1)")
        with MySqlSource(other.url, ["orders"]) as source:
            assert source.begin(position) is None
            chunk = source.chunk(source.tables()[0], None, 9)
            found = transactions(source, 2)
            assert [change.key for one in found for change in one.changes] == [(2,), (3,)]
            assert "server=2" in found[0].position
            assert [chunk.sees(one) for one in found] == [True, True]
            assert source.begin(found[0].position) is None
            assert brief(changes(source)) == [("c", "orders", (3,))]


def test_another_server_without_the_same_transactions_is_a_gap(own: Mariadb) -> None:
    restarted(own)
    with own.database() as database, Mariadb.running("--server-id=2") as two:
        database.execute(_ORDERS)
        with capturing(database) as source:
            position = source.state(None).head
        for statements in ((), ("RESET MASTER",), ("SET GLOBAL gtid_slave_pos = ''",)):
            with two.database() as other, MySqlSource(other.url, ["orders"]) as source:
                other.execute(_ORDERS, *statements)
                gap = source.begin(position)
                assert gap is not None and "took over" in gap.reason
