"""Columns as JSON: Arrow's text equals the text of each value."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.schema import json_text
from headrace.store.changelog import key_texts

MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("flag", pa.bool_()),
        ("at", MOMENT),
        ("local", pa.timestamp("us")),
        ("real", pa.float64()),
        ("inner", pa.struct([("text", pa.string()), ("at", MOMENT)])),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "local": st.none() | st.datetimes(),
        "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "inner": st.none()
        | st.fixed_dictionaries(
            {
                "text": st.none() | st.text(),
                "at": st.none() | st.datetimes(timezones=st.just(UTC)),
            }
        ),
    }
)


def readable(value: Any) -> str:
    assert isinstance(value, date)
    return value.isoformat().replace("+00:00", "Z")


def one_by_one(column: pa.Array) -> list[str]:
    return [json.dumps(value, default=readable, ensure_ascii=False) for value in column.to_pylist()]


def columns(table: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in table.columns]


@given(found=st.lists(ROWS, max_size=5))
def test_a_row_is_written_as_python_would(found: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(found, schema=SCHEMA)
    texts = json_text.objects(columns(table), SCHEMA.names, one_by_one, comma=", ", colon=": ")
    # Nested values have no spaces, which makes no difference to a reader.
    written = [json.dumps(row, default=readable) for row in found]
    assert [json.loads(text) for text in texts.to_pylist()] == [json.loads(w) for w in written]


@given(found=st.lists(ROWS, min_size=1, max_size=5))
def test_the_text_of_a_key_does_not_depend_on_the_others(found: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(found, schema=SCHEMA)
    alone = [key_texts(table.slice(number, 1))[0].as_py() for number in range(len(found))]
    assert key_texts(table).to_pylist() == alone


def test_texts_are_escaped_and_whole_seconds_have_no_fraction() -> None:
    rows = pa.table(
        {
            "text": ['say "hi"', "a\\b", "line\nline", "é"],
            "at": pa.array([datetime(2026, 1, 31, 12, 0, s, u, tzinfo=UTC) for s, u in (
                (0, 0), (0, 5), (1, 0), (59, 500_000))], MOMENT),
        }
    )  # fmt: skip
    texts = json_text.objects(columns(rows), rows.column_names, one_by_one)
    assert texts.to_pylist() == [
        r'{"text":"say \"hi\"","at":"2026-01-31T12:00:00Z"}',
        r'{"text":"a\\b","at":"2026-01-31T12:00:00.000005Z"}',
        r'{"text":"line\nline","at":"2026-01-31T12:00:01Z"}',
        r'{"text":"é","at":"2026-01-31T12:00:59.500000Z"}',
    ]


def test_a_time_beyond_the_years_of_python_is_written_as_well() -> None:
    beyond = pa.array([FIRST_MOMENT - 1, LAST_MOMENT + 1, None], pa.int64()).cast(MOMENT)
    written = json_text.values(beyond, one_by_one).to_pylist()
    assert written == ['"0000-12-31T23:59:59.999999Z"', '"10000-01-01T00:00:00Z"', "null"]
