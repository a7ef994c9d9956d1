"""Columns of JSON are what decoding row by row gives, whatever a topic holds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.kafka.rows_bytes import Garbage
from headrace.log.kafka.rows_json import JsonRows
from headrace.schema.ddl import parse_schema
from headrace.schema.json_columns import JsonColumns
from tests.json_objects import COLUMNS, VALUES

QUICK = parse_schema(COLUMNS)
NEEDED = parse_schema(COLUMNS.replace("text string", "text string not null"))
ROW_BY_ROW = parse_schema(
    f"{COLUMNS.replace('list array<decimal(10,2)>, ', '')}, half float, map map<string, double>"
)

VALID = b'{"text": "a", "long": 5, "at": "2026-01-31T12:00:00Z"}'


def read(rows: JsonRows, value: bytes, odd: set[str]) -> str:
    """The row of a value as text, or why there is none, as the slow decoder says."""
    try:
        (row,) = pa.RecordBatch.from_arrays(
            rows._slowly([value], odd), names=rows._schema.names
        ).to_pylist()
    except Garbage as garbage:
        return f"garbage: {garbage.reason}"
    return repr(row)


def check(schema: pa.Schema, values: list[bytes]) -> None:
    """Check that a batch is read as its records one by one."""
    rows = JsonRows(schema)
    odd: set[str] = set()
    expected = [read(rows, value, odd) for value in values]
    bad = [index for index, text in enumerate(expected) if text.startswith("garbage")]
    if bad:
        with pytest.raises(Garbage) as caught:
            rows.decode(values, set())
        assert (caught.value.index, f"garbage: {caught.value.reason}") == (
            bad[0],
            expected[bad[0]],
        )
        values = [value for index, value in enumerate(values) if index not in bad]
        expected = [text for index, text in enumerate(expected) if index not in bad]
    if not values:
        return
    found: set[str] = set()
    batch = pa.RecordBatch.from_arrays(rows.decode(values, found), schema=schema)
    batch.validate(full=True)
    assert list(map(repr, batch.to_pylist())) == expected
    assert found <= odd


@pytest.mark.parametrize("schema", [QUICK, NEEDED, ROW_BY_ROW], ids=["quick", "needed", "slow"])
@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_a_batch_is_read_as_its_records_one_by_one(schema: pa.Schema, values: list[bytes]) -> None:
    check(schema, values)


@pytest.mark.parametrize("schema", [QUICK, ROW_BY_ROW], ids=["quick", "slow"])
@pytest.mark.parametrize(
    "value",
    [
        b'{"small": 1.5}',
        b'{"real": -0}',
        b'{"real": %s}' % (b"9" * 400),
        b'{"real": "many"}',
        b'{"at": "9999-12-31T23:59:59.999999-01:00"}',
        b'{"at": "0000-01-01T00:00:00Z"}',
        b'{"day": "0000-01-01"}',
        b'{"list": [1e-400]}',
        b'{"money": 123456789.5}',
        b'{"text": "a"}{"text": "b"}',
        b'{"x": Inf}',
    ],
)
def test_what_decoders_read_differently_is_read_as_row_by_row(
    schema: pa.Schema, value: bytes
) -> None:
    check(schema, [value])
    check(schema, [VALID, value, VALID])


@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_arrow_decodes_nothing_that_row_by_row_is_read_differently(values: list[bytes]) -> None:
    rows = JsonRows(QUICK)
    for value in values:
        ((_, _, columns),) = JsonColumns(QUICK).pieces(pa.array([value], pa.binary()))
        if columns is not None:
            (row,) = pa.RecordBatch.from_arrays(columns, schema=QUICK).to_pylist()
            assert repr(row) == read(rows, value, set())


@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_records_do_not_change_what_their_neighbours_are(values: list[bytes]) -> None:
    # Joined, `{"a":1` and `,"b":2}` are one object, and `{}{}` is two.
    decoder = JsonColumns(QUICK)
    alone = [next(decoder.pieces(pa.array([value], pa.binary()))) for value in values]
    ((_, _, together),) = decoder.pieces(pa.array(values, pa.binary()))
    assert (together is not None) == all(piece.columns is not None for piece in alone)


def test_values_that_are_objects_only_together_are_not_decoded() -> None:
    values = [b'{"place": {"at": null}', b', "long": 2}', b"{}{}"]
    ((_, _, columns),) = JsonColumns(QUICK).pieces(pa.array(values, pa.binary()))
    assert columns is None


@pytest.mark.parametrize("bad", [b"{}{}", b'{"text": 1}', b"\xff", b"", b'{"x": NaN}'])
def test_one_bad_record_costs_a_handful_of_others_their_speed(bad: bytes) -> None:
    values = [VALID] * 20_000
    values[12_345] = bad
    pieces = list(JsonColumns(QUICK).pieces(pa.array(values, pa.binary())))
    left = [(start, end) for start, end, columns in pieces if columns is None]
    assert sum(end - start for start, end in left) <= 64
    assert any(start <= 12_345 < end for start, end in left)
    assert [pieces[0].start, *(piece.end for piece in pieces)] == [
        *(piece.start for piece in pieces),
        20_000,
    ]


@pytest.mark.parametrize(
    "value",
    [
        VALID,
        b"{}",
        b'{"text": "\xc3\xa9\\n\\ud83d\\ude00", "x": {"y": [1, null, "NaN"]}}',
        b'{"money": "12.50", "list": ["1.00", 2], "raw": "AP8=", "flag": true, "tiny": -128}',
        b'{"at": "2026-01-31 12:00:00.5+02:00", "local": "2026-01-31T12:00:00", "real": 1e3}',
        b'{"place": {"at": null, "tags": ["a", null]}, "day": "0001-01-01", "real": 5}',
        b'{\n  "text": "Hello, I am Information"\n}',
    ],
)
def test_common_objects_are_decoded_by_arrow(value: bytes) -> None:
    ((_, _, columns),) = JsonColumns(QUICK).pieces(pa.array([value], pa.binary()))
    assert columns is not None


def test_unknown_fields_are_told() -> None:
    odd: set[str] = set()
    values: Any = pa.array([VALID, b'{"x": 1}', b'{"x": "a", "y": {"z": 1}}'], pa.binary())
    list(JsonColumns(QUICK).pieces(values, odd))
    assert odd in ({"x", "y"}, set()), "all, or the rows are left to the other decoder"
    rows = JsonRows(QUICK)
    rows.decode(values.to_pylist(), odd)
    assert odd == {"x", "y"}
