"""Each type of PostgreSQL becomes the same Arrow values from the stream, a chunk, and a topic."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.cdc.postgres.columns import Converter
from headrace.cdc.postgres.source import PostgresSource
from headrace.schema.ddl import format_type
from tests.postgres import changes, reading

pytestmark = pytest.mark.service

_UTC = ZoneInfo("UTC")
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)
_FIRST = datetime(1, 1, 1)

# The type in SQL, in a topic, and pairs of a value in SQL and in Arrow.
TYPES: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("smallint", "smallint", [("-32768", -32768), ("32767", 32767)]),
    ("integer", "int", [("-2147483648", -2147483648)]),
    ("bigint", "bigint", [("9223372036854775807", 9223372036854775807)]),
    ("oid", "bigint", [("4294967295", 4294967295)]),
    ("numeric(10,2)", "decimal(10,2)", [("12345678.9", Decimal("12345678.90")), ("'NaN'", None)]),
    ("numeric(38,10)", "decimal(38,10)", [("-0.0000000001", Decimal("-0.0000000001"))]),
    ("numeric(5)", "decimal(5,0)", [("99999", Decimal(99999))]),
    ("numeric", "string", [("1e-30", "0." + "0" * 29 + "1"), ("'NaN'", "NaN"),
                           ("'-Infinity'", "-Infinity")]),
    ("numeric(50,2)", "string", [("1.5", "1.50")]),
    ("numeric(3,-2)", "string", [("12345", "12300")]),
    ("real", "float", [("1.5", 1.5), ("'NaN'", nan),
                       ("'-Infinity'", -inf)]),
    ("double precision", "double", [("0.1", 0.1), ("1e308", 1e308), ("'NaN'", nan),
                                    ("'Infinity'", inf), ("'-0'", -0.0)]),
    ("boolean", "boolean", [("true", True), ("false", False)]),
    ("text", "string", [("''", ""), ("E'tab\\tline\\n\\\\N \\\\'", "tab\tline\n\\N \\"),
                        ("'\U0001f9ea ü'", "\U0001f9ea ü")]),
    ("varchar(5)", "string", [("'abc'", "abc")]),
    ("char(5)", "string", [("'abc'", "abc  ")]),
    ("bytea", "binary", [(r"'\x00ff5c0a'", b"\x00\xff\\\n"), (r"'\x'", b"")]),
    ("date", "date", [("'2024-02-29'", date(2024, 2, 29)), ("'infinity'", _LAST.date()),
                      ("'-infinity'", _FIRST.date()), ("'0044-03-15 BC'", _FIRST.date()),
                      ("'5874897-12-31'", _LAST.date()), ("'0001-01-01'", _FIRST.date())]),
    ("timestamp", "timestamp_ntz", [("'2024-02-29 23:59:59.123456'",
                                     datetime(2024, 2, 29, 23, 59, 59, 123456)),
                                    ("'infinity'", _LAST), ("'-infinity'", _FIRST),
                                    ("'294276-12-31 23:59:59.999999'", _LAST),
                                    ("'4713-01-01 00:00:00 BC'", _FIRST)]),
    ("timestamp(0)", "timestamp_ntz", [("'2024-01-01 00:00:01.6'",
                                        datetime(2024, 1, 1, 0, 0, 2))]),
    ("timestamptz", "timestamp", [("'2024-07-01 12:00:00+02'",
                                   datetime(2024, 7, 1, 10, tzinfo=_UTC)),
                                  ("'infinity'", _LAST.replace(tzinfo=_UTC)),
                                  ("'0044-03-15 10:00:00+00 BC'", _FIRST.replace(tzinfo=_UTC))]),
    ("time", "string", [("'24:00:00'", "24:00:00"), ("'01:02:03.5'", "01:02:03.5")]),
    ("timetz", "string", [("'01:02:03+02'", "01:02:03+02")]),
    ("interval", "string", [("'1 year 2 days 03:04:05'", "1 year 2 days 03:04:05")]),
    ("uuid", "string", [("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
                         "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]),
    ("json", "string", [("""'{"b": 1,  "a": [null]}'""", '{"b": 1,  "a": [null]}')]),
    ("jsonb", "string", [("""'{"b": 1,  "a": "\\"x"}'""", '{"a": "\\"x", "b": 1}')]),
    ("mood", "string", [("'so so'", "so so")]),
    ("positive", "int", [("7", 7)]),
    ("price", "decimal(8,2)", [("7", Decimal("7.00"))]),
    ("integer[]", "array<int>", [("'{1,NULL,3}'", [1, None, 3]), ("'{}'", []),
                                 ("'{{1,2},{3,4}}'", [1, 2, 3, 4]), ("'[5:6]={8,9}'", [8, 9])]),
    ("text[]", "array<string>", [("""ARRAY['a,b', 'say "x"', NULL, 'NULL', '', '\\']""",
                                  ["a,b", 'say "x"', None, "NULL", "", "\\"])]),
    ("timestamptz[]", "array<timestamp>", [("ARRAY['2024-01-01 00:00:00+00'::timestamptz]",
                                            [datetime(2024, 1, 1, tzinfo=_UTC)])]),
    ("bytea[]", "array<binary>", [(r"ARRAY['\x01'::bytea, NULL]", [b"\x01", None])]),
    ("mood[]", "array<string>", [("ARRAY['so so']::mood[]", ["so so"])]),
    ("box[]", "string", [("'{(1,1),(0,0);(2,2),(0,0)}'", "{(1,1),(0,0);(2,2),(0,0)}")]),
    ("int4range", "string", [("'[1,5)'", "[1,5)")]),
    ("inet", "string", [("'10.0.0.1/8'", "10.0.0.1/8")]),
    ("bit(3)", "string", [("B'101'", "101")]),
    ("pair", "string", [("ROW(1, 'a b')", '(1,"a b")')]),
    ("point", "string", [("'(1,2)'", "(1,2)")]),
]  # fmt: skip

_DECLARATIONS = (
    "CREATE TYPE mood AS ENUM ('good', 'so so')",
    "CREATE DOMAIN positive AS integer CHECK (value > 0)",
    "CREATE DOMAIN price AS numeric(8, 2)",
    "CREATE TYPE pair AS (n int, t text)",
)


@pytest.fixture(scope="module")
def typed(postgresql_server: Any) -> Any:
    """A table with a column of each type, and a row for each value."""
    with postgresql_server.database() as database:
        database.execute(*_DECLARATIONS)
        columns = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(TYPES))
        database.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {columns})")
        with reading(database, "typed") as source:
            database.execute("INSERT INTO typed VALUES (0)")
            number = 0
            for place, (_, _, values) in enumerate(TYPES):
                for text, _ in values:
                    number += 1
                    database.execute(f"INSERT INTO typed (id, c{place}) VALUES ({number}, {text})")
            yield source, [change.after for change in changes(source)]


def _same(found: Any, expected: Any) -> bool:
    """True for equal values. NaN is one, and the zeros are two."""
    return repr(found) == repr(expected)


def test_each_type_has_its_type_in_a_topic(typed: tuple[PostgresSource, Any]) -> None:
    source, _ = typed
    (table,) = source.tables()
    found = [format_type(column.type) for column in table.columns][1:]
    assert dict(zip([kind for kind, _, _ in TYPES], found, strict=True)) == {
        kind: expected for kind, expected, _ in TYPES
    }


def test_each_value_has_its_equal_or_the_one_that_the_docs_name(
    typed: tuple[PostgresSource, Any],
) -> None:
    source, rows = typed
    (table,) = source.tables()
    values = source.columns(table.columns, rows).to_pylist()
    assert all(value is None for name, value in values[0].items() if name != "id")
    number = 0
    for place, (kind, _, pairs) in enumerate(TYPES):
        for text, expected in pairs:
            number += 1
            found = values[number][f"c{place}"]
            assert _same(found, expected), f"{kind} {text} became {found!r}, not {expected!r}"


def test_a_chunk_has_the_same_rows_as_the_stream(typed: tuple[PostgresSource, Any]) -> None:
    source, rows = typed
    (table,) = source.tables()
    chunk = source.chunk(table, None, 1000)
    assert list(chunk.rows) == rows
    assert chunk.values is not None
    assert repr(chunk.values.to_pylist()) == repr(source.columns(table.columns, rows).to_pylist())


def test_values_that_arrow_reads_itself_are_the_same(typed: tuple[PostgresSource, Any]) -> None:
    source, rows = typed
    (table,) = source.tables()
    read: set[int] = set()
    for row in rows:
        made = source.columns(table.columns, [row])
        data = b",".join(b"" if v is None else b'"' + v.replace(b'"', b'""') + b'"' for v in row)
        converter = Converter()
        assert repr(converter.from_csv(table.columns, data + b"\n").to_pylist()) == repr(
            made.to_pylist()
        )
        if not converter.replaced:
            read.update(place for place, value in enumerate(row) if value is not None)
    assert len(read) > len(table.columns) * 0.9


def test_rows_made_from_a_topic_become_the_same_values_again(
    typed: tuple[PostgresSource, Any],
) -> None:
    source, rows = typed
    (table,) = source.tables()
    values = source.columns(table.columns, [None, *rows])
    again = source.columns(table.columns, source.rows(table.columns, values))
    assert again.is_valid().to_pylist() == values.is_valid().to_pylist()
    assert repr(again.to_pylist()) == repr(values.to_pylist())


def test_values_that_arrow_has_no_equal_for_are_counted(typed: tuple[PostgresSource, Any]) -> None:
    source, rows = typed
    (table,) = source.tables()
    with PostgresSource(str(source.address)) as other:
        other.columns(table.columns, rows)
        facts = other.state(None).facts["values out of range"]
    kinds = [kind for kind, _, _ in TYPES]
    assert f"public.typed.c{kinds.index('numeric(10,2)')}: 1" in facts
    assert f"public.typed.c{kinds.index('date')}: 4" in facts


def test_no_rows_and_missing_rows_can_be_converted(typed: tuple[PostgresSource, Any]) -> None:
    source, rows = typed
    (table,) = source.tables()
    assert len(source.columns(table.columns, [])) == 0
    found = source.columns(table.columns, [None, rows[1], None])
    assert found.is_valid().to_pylist() == [False, True, False]
    key = pa.schema([table.columns.field("id")])
    assert source.columns(key, [(b"1",), (b"2",)]).to_pylist() == [{"id": 1}, {"id": 2}]
