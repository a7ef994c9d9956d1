"""Rows on Kafka: JSON and Avro give the same values back."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import LAST_MOMENT
from headrace.errors import InvalidSchema
from headrace.log import Topic, TopicSettings
from headrace.log.kafka.rows_avro import AvroRows
from headrace.log.kafka.rows_bytes import BytesRows, Garbage
from headrace.log.kafka.rows_json import JsonRows
from headrace.log.kafka.wire import check_columns
from headrace.log.partitioner import key_bytes, key_of_bytes
from headrace.schema.ddl import parse_schema, parse_type

COLUMNS = (
    "text string, tiny tinyint, small smallint, whole int, long bigint, half float, real double, "
    "flag boolean, at timestamp, local timestamp_ntz, day date, money decimal(38,18), raw binary, "
    "list array<decimal(10,2)>, map map<string, double>, "
    "place struct<at: timestamp, raw: binary, tags: array<string>>"
)
SCHEMA = parse_schema(COLUMNS)

FORMATS = pytest.mark.parametrize("rows", [JsonRows(SCHEMA), AvroRows(SCHEMA)])

_zoned = st.datetimes(timezones=st.just(UTC))
_money = st.decimals(-10, 10, places=18)
_cents = st.decimals(-99999, 99999, places=2)
ROWS = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(),
        "tiny": st.none() | st.integers(-128, 127),
        "small": st.none() | st.integers(-(2**15), 2**15 - 1),
        "whole": st.none() | st.integers(-(2**31), 2**31 - 1),
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "half": st.none() | st.floats(width=32),
        "real": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "at": st.none() | _zoned,
        "local": st.none() | st.datetimes(),
        "day": st.none() | st.dates(),
        "money": st.none() | _money,
        "raw": st.none() | st.binary(),
        "list": st.none() | st.lists(st.none() | _cents, max_size=3),
        "map": st.none()
        | st.dictionaries(st.text(), st.none() | st.floats(), max_size=3).map(
            lambda found: list(found.items())
        ),
        "place": st.none()
        | st.fixed_dictionaries(
            {
                "at": st.none() | _zoned,
                "raw": st.none() | st.binary(),
                "tags": st.none() | st.lists(st.none() | st.text(), max_size=3),
            }
        ),
    }
)


def topic(format: str) -> Topic:
    return Topic("t", 1, None, None, None, TopicSettings(format=format))


def batch(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema)


@FORMATS
@given(found=st.lists(ROWS, max_size=4))
def test_rows_come_back_as_they_went_in(rows: Any, found: list[dict[str, Any]]) -> None:
    given = batch(*found)
    back = pa.RecordBatch.from_arrays(rows.decode(rows.encode(given), set()), schema=SCHEMA)
    assert repr(back.to_pylist()) == repr(given.to_pylist())  # where NaN equals NaN


@given(found=st.lists(ROWS, max_size=4))
def test_json_is_read_alike_at_once_and_value_by_value(found: list[dict[str, Any]]) -> None:
    rows = JsonRows(SCHEMA)
    values = rows.encode(batch(*found))
    slow = pa.RecordBatch.from_arrays(rows._slowly(values, set()), schema=SCHEMA)
    quick = pa.RecordBatch.from_arrays(rows.decode(values, set()), schema=SCHEMA)
    assert repr(slow.to_pylist()) == repr(quick.to_pylist())


def test_json_is_what_a_person_would_write() -> None:
    schema = parse_schema("id string, at timestamp, amount decimal(10,2), raw binary, n double")
    row = {
        "id": "é",
        "at": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        "amount": Decimal("1.50"),
        "raw": b"\x00\xff",
        "n": math.inf,
    }
    (value,) = JsonRows(schema).encode(batch(row, schema=schema))
    assert json.loads(value) == {
        "id": "é",
        "at": "2026-01-31T12:00:00.000005Z",
        "amount": "1.50",
        "raw": "AP8=",
        "n": "Infinity",
    }


def test_json_of_others_is_read_too() -> None:
    schema = parse_schema("at timestamp, amount decimal(20,2), n double, i int, day date")
    odd: set[str] = set()
    columns = JsonRows(schema).decode(
        [
            b'{"at": "2026-01-31T13:00:00+01:00", "amount": 123456789012345678.12, "n": 1, "x": 1}',
            b'{"i": 2.0, "day": "2026-01-31"}',
        ],
        odd,
    )
    first, second = pa.RecordBatch.from_arrays(columns, schema=schema).to_pylist()
    assert first["at"] == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert first["amount"] == Decimal("123456789012345678.12"), "with all its digits"
    assert (first["n"], second["i"], second["day"]) == (1.0, 2, date(2026, 1, 31))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x00\xff", "not JSON"),
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"id": 5}', "'id'"),
        (b'{"id": "a", "n": "many"}', "'n'"),
        (b'{"id": "a", "n": 3000000000}', "'n'"),
        (b'{"n": 1}', "must not be null"),
        (b'{"id": "a"}{"id": "b"}', "not JSON"),
    ],
)
def test_json_that_is_no_row_is_found(value: bytes, said: str) -> None:
    rows = JsonRows(parse_schema("id string not null, n int"))
    with pytest.raises(Garbage, match=said) as caught:
        rows.decode([b'{"id": "a"}', value, b'{"id": "b"}'], set())
    assert caught.value.index == 1


@pytest.mark.parametrize("value", [b"", b"\xff" * 30, b"\x00\x00\x00"])
def test_avro_that_is_no_row_is_found(value: bytes) -> None:
    schema = parse_schema("id string, n int")
    rows = AvroRows(schema)
    (good,) = rows.encode(batch({"id": "a", "n": 1}, schema=schema))
    with pytest.raises(Garbage) as caught:
        rows.decode([good, value], set())
    assert caught.value.index == 1


@pytest.mark.parametrize("column", ["m map<int, string>", "a array<map<date, int>>"])
def test_a_map_has_text_as_its_keys(column: str) -> None:
    with pytest.raises(InvalidSchema, match="not text"):
        check_columns(topic("json"), column)


def test_a_name_that_avro_does_not_have_is_refused() -> None:
    check_columns(topic("json"), "`two words` int")
    with pytest.raises(InvalidSchema, match="Avro"):
        check_columns(topic("avro"), "`two words` int")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "é"),
        ("binary", b"\x00"),
        ("tinyint", -5),
        ("smallint", -500),
        ("int", 7),
        ("bigint", -(2**40)),
        ("float", 0.5),
        ("double", 0.1),
        ("boolean", True),
        ("date", date(2020, 1, 1)),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2020, 1, 1)),
        ("decimal(12,10)", Decimal("0.0000000001")),
    ],
)
def test_a_key_is_read_from_its_bytes(kind: str, value: Any) -> None:
    type = parse_type(kind)
    (data,) = key_bytes(pa.array([value], type)).to_pylist()
    assert key_of_bytes(data, type) == value


def test_bytes_that_are_no_such_key_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        key_of_bytes(b"abc", pa.int64())


@given(found=st.lists(st.text(), max_size=4))
def test_bytes_are_a_row_as_they_are_and_have_no_time(found: list[str]) -> None:
    schema = parse_schema("line string not null, at timestamp")
    rows = BytesRows(schema)
    given = batch(*({"line": line, "at": None} for line in found), schema=schema)
    assert rows.encode(given) == [line.encode() for line in found]
    back = pa.RecordBatch.from_arrays(rows.decode(rows.encode(given), set()), schema=schema)
    assert back == given


def test_bytes_that_are_no_text_are_found_and_binary_is_whatever_it_is() -> None:
    with pytest.raises(Garbage, match="it is not UTF-8 text") as found:
        BytesRows(parse_schema("line string not null")).decode([b"a", b"\xff"], set())
    assert found.value.index == 1
    (values,) = BytesRows(parse_schema("data binary not null")).decode([b"a", b"\xff"], set())
    assert values.to_pylist() == [b"a", b"\xff"]


@pytest.mark.parametrize(
    "schema",
    [
        "line string",
        "line string not null, other string not null",
        "line string not null, size int",
        "line string not null, at timestamp not null",
        "at timestamp",
    ],
)
def test_columns_that_bytes_cannot_fill_are_refused(schema: str) -> None:
    with pytest.raises(InvalidSchema, match="With format=bytes, one column"):
        BytesRows(parse_schema(schema))


@pytest.mark.parametrize("kind", [JsonRows, AvroRows])
def test_the_end_of_a_window_after_the_year_9999_can_be_written(
    kind: type[JsonRows | AvroRows],
) -> None:
    schema = parse_schema("window_end timestamp")
    moment = pa.array([LAST_MOMENT + 1], pa.int64()).cast(schema.field(0).type)
    (written,) = kind(schema).encode(pa.RecordBatch.from_arrays([moment], schema=schema))
    assert written
