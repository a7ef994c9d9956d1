"""A key goes to the partition that Kafka's own client would choose."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidSchema, InvalidSetting, NullKey, WrongType
from headrace.log import partitioner
from headrace.log.partitioner import (
    key_bytes,
    key_bytes_of,
    murmur2,
    partition_column,
    partition_of,
)

# A small alphabet and mixed lengths make repeated keys and every word remainder likely.
keys_or_none = st.lists(
    st.none() | st.binary(max_size=9) | st.sampled_from([b"abc", b"abcdefgh", b"", b"x" * 100])
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # Kafka's UtilsTest.testMurmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        # Made with the Java client, from the tests of clients in other languages.
        (b"", 275646681),
        (bytes([12, 42, 56, 24, 109, 111]), 274204207),
    ],
)
def test_a_key_hashes_as_kafkas_java_client_hashes_it(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_a_key_goes_where_kafkas_java_client_sends_it() -> None:
    # The sign bit is dropped, not the sign: -790332482 becomes 1357151166, not 790332482.
    assert partition_of(b"foobar", 10) == 1357151166 % 10
    assert partition_of(b"abc", 7) == 479470107 % 7


@given(
    keys=keys_or_none,
    partitions=st.integers(1, 1000) | st.just(2**31 - 1),
    start=st.integers(0, 5),
    stop=st.integers(0, 5),
    kind=st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    block=st.integers(1, 5),
)
def test_a_column_goes_where_its_keys_go_one_by_one(
    *,
    keys: list[bytes | None],
    partitions: int,
    start: int,
    stop: int,
    kind: pa.DataType,
    block: int,
) -> None:
    expected = [-1 if key is None else partition_of(key, partitions) for key in keys]
    column = pa.array(keys, kind)
    with mock.patch.object(partitioner, "_BLOCK", block):
        found = partition_column(column, partitions)
        part = partition_column(column.slice(start, max(0, len(keys) - start - stop)), partitions)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    assert part.tolist() == expected[start : max(start, len(keys) - stop)]


@given(keys=keys_or_none, partitions=st.integers(1, 100), start=st.integers(0, 5))
def test_a_dictionary_column_goes_where_its_values_go(
    keys: list[bytes | None], partitions: int, start: int
) -> None:
    plain = pa.array(keys, pa.binary()).slice(start)
    encoded = pa.array(keys, pa.binary()).dictionary_encode().slice(start)
    expected = partition_column(plain, partitions).tolist()
    assert partition_column(encoded, partitions).tolist() == expected


@given(st.lists(st.none() | st.text()), st.integers(1, 100))
def test_text_goes_where_its_utf_8_goes(keys: list[str | None], partitions: int) -> None:
    raw = [None if key is None else key.encode() for key in keys]
    expected = partition_column(pa.array(raw, pa.binary()), partitions).tolist()
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert partition_column(pa.array(keys, kind), partitions).tolist() == expected


@pytest.mark.parametrize("length", range(10))
def test_keys_of_one_length_go_where_they_go_one_by_one(length: int) -> None:
    keys = [bytes((i * 7 + j) % 256 for j in range(length)) for i in range(50)]
    found = partition_column(pa.array(keys, pa.binary()).slice(3), 12)
    assert found.tolist() == [partition_of(key, 12) for key in keys[3:]]


@pytest.mark.parametrize("distinct", [10, 40_000])
def test_many_keys_go_where_they_go_one_by_one(distinct: int) -> None:
    keys = [f"user-{i * i % distinct}" for i in range(40_000)]
    found = partition_column(pa.array(keys), 12)
    assert found.tolist() == [partition_of(key.encode(), 12) for key in keys]


def test_few_distinct_keys_are_hashed_once_each() -> None:
    keys = pa.array([f"user-{i % 100}" for i in range(40_000)])
    with mock.patch.object(partitioner, "_hashes", wraps=partitioner._hashes) as hashes:
        partition_column(keys, 12)
    assert [len(call.args[2]) for call in hashes.call_args_list] == [100]


AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

TYPED_KEYS: list[tuple[pa.DataType, Any, bytes]] = [
    (pa.string(), "Zoë", b"Zo\xc3\xab"),
    (pa.binary(), b"\x00\xff", b"\x00\xff"),
    (pa.binary(2), b"ab", b"ab"),
    (pa.int8(), -2, b"\xfe"),
    (pa.int16(), -2, struct.pack(">h", -2)),
    (pa.int32(), 1234567, struct.pack(">i", 1234567)),
    (pa.int64(), -(2**63), struct.pack(">q", -(2**63))),
    (pa.float32(), 1.5, struct.pack(">f", 1.5)),
    (pa.float64(), -0.0, struct.pack(">d", -0.0)),
    (pa.bool_(), True, b"\x01"),
    (pa.bool_(), False, b"\x00"),
    (pa.date32(), date(1970, 1, 11), struct.pack(">i", 10)),
    (pa.timestamp("us", tz="UTC"), AT, struct.pack(">q", 1767323045678901)),
    (pa.timestamp("us"), AT.replace(tzinfo=None), struct.pack(">q", 1767323045678901)),
    (pa.decimal128(12, 2), Decimal("-12.50"), b"-12.50"),
    (pa.decimal128(20, 10), Decimal("0.0000000001"), b"0.0000000001"),
    (pa.decimal128(20, 10), Decimal("0"), b"0.0000000000"),
    (pa.decimal128(5, -2), Decimal("100"), b"100"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TYPED_KEYS)
def test_a_typed_key_is_the_bytes_of_kafkas_serializer(
    kind: pa.DataType, value: Any, expected: bytes
) -> None:
    column = pa.array([None, value, None, value], kind)
    assert key_bytes(column).type == pa.binary()
    assert key_bytes(column).to_pylist() == [None, expected, None, expected]
    assert key_bytes(column.slice(1, 2)).to_pylist() == [expected, None]
    assert key_bytes(column.slice(0, 0)).to_pylist() == []
    assert key_bytes_of(value, kind) == expected
    assert partition_column(column, 12).tolist() == [-1, partition_of(expected, 12)] * 2


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.integers(0, 3))
def test_a_number_is_the_same_key_alone_and_in_a_column(
    values: list[int | None], start: int
) -> None:
    column = pa.array(values, pa.int64()).slice(start)
    assert key_bytes(column).to_pylist() == [
        None if value is None else key_bytes_of(value, pa.int64()) for value in values[start:]
    ]


def test_every_double_that_is_no_number_is_one_key() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert set(key_bytes(pa.array(odd)).to_pylist()) == {bytes.fromhex("7ff8000000000000")}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.map_(pa.string(), pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.timestamp("ns"),
        pa.uint32(),
        pa.null(),
    ],
)
def test_a_column_without_a_serializer_cannot_be_a_key(kind: pa.DataType) -> None:
    empty = pa.array([], kind)
    with pytest.raises(InvalidSchema, match="cannot be a key"):
        key_bytes(empty)
    with pytest.raises(InvalidSchema, match="cannot be a key"):
        partition_column(pa.array([None], kind), 12)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("a", pa.int32()),
        (5, pa.string()),
        (2**31, pa.int32()),
        (True, pa.int64()),
        ("\ud800", pa.string()),
        (b"abc", pa.binary(2)),
    ],
)
def test_a_key_that_does_not_fit_its_column_is_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(WrongType, match="does not fit"):
        key_bytes_of(value, kind)


def test_no_key_has_no_bytes() -> None:
    with pytest.raises(NullKey):
        key_bytes_of(None, pa.string())


def test_a_topic_without_partitions_has_no_place_for_a_key() -> None:
    with pytest.raises(InvalidSetting):
        partition_of(b"a", 0)
    with pytest.raises(InvalidSetting):
        partition_column(pa.array([b"a"]), 0)
