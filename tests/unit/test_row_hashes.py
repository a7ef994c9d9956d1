"""Hashes of rows: equal for equal rows however they are kept, and different after any change."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.application.verify.sums import Sums
from headrace.errors import Unsupported
from headrace.schema.row_hashes import column_hashes, row_hashes

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("data", pa.binary()),
        ("price", pa.float64()),
        ("exact", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
        ("open", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(max_size=20)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": INT64,
            "name": st.none() | NAMES,
            "data": st.none() | st.binary(max_size=20),
            "price": st.none() | st.floats(),
            "exact": st.none() | st.decimals(-(10**9), 10**9, places=4),
            "at": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(
                lambda moment: moment.replace(tzinfo=UTC)
            ),
            "on": st.none() | st.dates(),
            "open": st.none() | st.booleans(),
            "tags": st.none() | st.lists(st.none() | NAMES, max_size=4),
            "place": st.none() | st.fixed_dictionaries(
                {"x": st.none() | st.integers(-9, 9), "y": st.none() | NAMES}
            ),
        }
    ),
    max_size=12,
)  # fmt: skip


def sums_of(table: pa.Table) -> Sums:
    found = Sums()
    found.add(row_hashes(table.select(["id"])), row_hashes(table))
    return found


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_equal_rows_have_equal_sums_in_any_order_and_any_batches(
    rows: list[dict[str, Any]], random: Any, size: int
) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    order = list(range(len(rows)))
    random.shuffle(order)
    shuffled = pa.Table.from_pylist([rows[place] for place in order], schema=SCHEMA)
    in_parts = Sums()
    for batch in shuffled.to_batches(size):
        in_parts.add(row_hashes(batch.select(["id"])), row_hashes(batch))
    assert not sums_of(table).differs(in_parts).any()


@given(ROWS.filter(bool), st.data())
def test_a_change_of_any_one_value_changes_the_sum_of_its_range(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    before = pa.Table.from_pylist(rows, schema=SCHEMA)
    place = data.draw(st.integers(0, len(rows) - 1))
    others = data.draw(ROWS.filter(bool))
    name = data.draw(st.sampled_from([name for name in SCHEMA.names if name != "id"]))
    changed = [*rows]
    changed[place] = {**rows[place], name: others[0][name]}
    after = pa.Table.from_pylist(changed, schema=SCHEMA)
    assert sums_of(before).differs(sums_of(after)).any() == (not alike(before, after, name))


def alike(one: pa.Table, other: pa.Table, name: str) -> bool:
    """True if two columns are equal, where a NaN is one and -0.0 is 0.0."""
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a + b))
        for a, b in zip(one[name].to_pylist(), other[name].to_pylist(), strict=True)
    )


@given(st.binary(min_size=1, max_size=40), st.data())
def test_one_flipped_bit_changes_the_hash_of_bytes(value: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, len(value) * 8 - 1))
    flipped = bytearray(value)
    flipped[bit // 8] ^= 1 << bit % 8
    one, other = column_hashes(pa.array([value, bytes(flipped)]))
    assert one != other


@given(st.floats(allow_nan=False), st.integers(0, 63))
def test_one_flipped_bit_changes_the_hash_of_a_number(value: float, bit: int) -> None:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    (flipped,) = struct.unpack("<d", struct.pack("<Q", (bits & (1 << 64) - 1) ^ (1 << bit)))
    one, other = column_hashes(pa.array([value, flipped], pa.float64()))
    assert (one == other) == (value == flipped)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([-0.0]), pa.array([0.0])),
        (pa.array([float("nan")]), pa.array([-float("nan")])),
        (pa.array([1.5], pa.float32()), pa.array([1.5])),
        (pa.array([7], pa.int16()), pa.array([7], pa.int64())),
        (pa.array([7], pa.uint8()), pa.array([7], pa.int64())),
        (pa.array(["a\u0000ß"]), pa.array(["a\u0000ß"], pa.large_string())),
        (pa.array(["ab"]), pa.array([b"ab"])),
        (pa.array([b"ab"], pa.binary(2)), pa.array([b"ab"])),
        (pa.array(["ab"]).dictionary_encode(), pa.array(["ab"])),
        (
            pa.array([Decimal("1.10")], pa.decimal128(9, 2)),
            pa.array([Decimal("1.1")], pa.decimal128(30, 2)),
        ),
        (
            pa.array([datetime(2026, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            pa.array(
                [datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
                pa.timestamp("ms", "Europe/Berlin"),
            ),
        ),
        (
            pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64())),
        ),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.array([[1, 2], None])),
    ],
)
def test_a_value_has_one_hash_however_it_is_kept(one: pa.Array, other: pa.Array) -> None:
    assert column_hashes(one).tolist() == column_hashes(other).tolist()


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", None, "\u0000", "\u0000\u0000", "0"]),
        pa.array([0, None, 1, -1]),
        pa.array([0.0, None, float("nan"), float("inf"), -float("inf")]),
        pa.array([[], None, [None], [[]], [[None]], [["a"], []], [[], ["a"]]]),
        pa.array([{"a": None}, None, {"a": 1}]),
        pa.array(["é", "e\u0301"]),
        pa.array([[1, 2], [2, 1], [1], [2], [1, 2, 0]]),
        pa.array([Decimal(1), Decimal(-1), Decimal(2**64), None], pa.decimal128(38, 0)),
    ],
)
def test_unequal_values_have_unequal_hashes(values: pa.Array) -> None:
    assert len(set(column_hashes(values).tolist())) == len(values)


def test_the_same_values_in_other_columns_are_another_row() -> None:
    hashes = row_hashes(pa.table({"a": [1, 2, 1], "b": [2, 1, 1]}))
    assert len(set(hashes.tolist())) == 3


def test_the_same_number_in_several_columns_is_no_other_number_in_them() -> None:
    numbers = pa.array(range(1_000), pa.int64())
    for count in range(2, 6):
        alike = pa.table({f"column {place}": numbers for place in range(count)})
        assert len(set(row_hashes(alike).tolist())) == len(numbers)
        lists = pa.array([[number] * count for number in range(1_000)])
        assert len(set(column_hashes(lists).tolist())) == len(numbers)


def test_a_slice_has_the_hashes_of_its_rows() -> None:
    table = pa.Table.from_pylist(
        [{"id": n, "name": "x" * n, "tags": ["y"] * n} for n in range(40)], schema=SCHEMA
    )
    assert row_hashes(table.slice(13, 9)).tolist() == row_hashes(table)[13:22].tolist()


def test_the_bytes_behind_a_null_do_not_count() -> None:
    behind = pa.array(["secret", "b"])
    masked = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), *behind.buffers()[1:]], null_count=1
    )
    assert column_hashes(masked).tolist() == column_hashes(pa.array([None, "b"])).tolist()


def test_a_row_that_is_there_twice_is_not_one() -> None:
    once, twice = pa.table({"id": [1]}), pa.table({"id": [1, 1]})
    assert sums_of(once).differs(sums_of(twice)).sum() == 1


def test_a_type_without_a_checksum_is_named() -> None:
    with pytest.raises(Unsupported, match="month_day_nano_interval"):
        column_hashes(pa.array([pa.MonthDayNano([1, 2, 3])]))
