"""Hashes of rows that depend on their values alone, to compare tables in different stores.

A row has the same hash whatever batch it is in, and however a store keeps its values: -0.0 is 0.0,
one NaN is another, and a time is its moment in whatever zone. Each step of a hash is a bijection of
64 bits, so a change of one number, or of up to eight adjacent bytes of a text, always gives another
hash; two larger changes cancel out once in 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from headrace.errors import Unsupported

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_PLACE = np.uint64(0xD1B54A32D192ED03)
_NO_SIGN = np.uint64((1 << 63) - 1)
_INFINITE = np.uint64(0x7FF << 52)
_WORD = 8
_ROWS_AT_ONCE = 16_384
"""So many rows and their hashes fit into a processor's cache: twice as fast as more of them."""


def row_hashes(rows: pa.RecordBatch | pa.Table) -> Hashes:
    """The hash of each row. Its columns count by their place."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    parts = [NONE]
    for batch in rows.to_batches(_ROWS_AT_ONCE):
        parts.append(_together([column_hashes(c) for c in batch.columns], batch.num_rows))
    return np.concatenate(parts)


NONE: Hashes = np.zeros(0, np.uint64)
"""The hashes of no rows."""


def column_hashes(column: pa.Array) -> Hashes:
    """The hash of each value of a column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    found = _values(column)
    if column.null_count:
        found[_nulls(column)] = _NULL
    return found


def _values(column: pa.Array) -> Hashes:
    kind = column.type
    if types.is_null(kind):
        return np.full(len(column), _NULL)
    if types.is_dictionary(kind):
        return column_hashes(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return column_hashes(column.storage)
    if types.is_struct(kind):
        return _together([column_hashes(part) for part in column.flatten()], len(column))
    if types.is_string(kind) or types.is_binary(kind):
        return _texts(column, np.int32)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _texts(column, np.int64)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(column)
    if types.is_map(kind):
        # Its entries have no order: their hashes are added without their places.
        return _lists(column.cast(pa.list_(_entry(kind))), ordered=False)
    if types.is_fixed_size_list(kind):
        return column_hashes(column.cast(pa.list_(kind.value_field)))
    if types.is_decimal(kind):
        if kind.bit_width < 128:
            column, kind = column.cast(wide := pa.decimal128(kind.precision, kind.scale)), wide
        return _fixed(column, kind.bit_width // 8)
    if types.is_fixed_size_binary(kind):
        return column_hashes(column.cast(pa.binary()))
    return _mix(_numbers(column).view(np.uint64))


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """A column of numbers, times or booleans as integers or floats of 64 bits."""
    kind = column.type
    if types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        size = values.view(np.uint64) & _NO_SIGN
        # By their bits: arithmetic warns of a NaN that signals.
        return np.where(size > _INFINITE, np.nan, np.where(size == 0, 0.0, values))
    if types.is_unsigned_integer(kind):
        whole = pa.uint64()
    elif types.is_integer(kind) or types.is_boolean(kind):
        whole = pa.int64()
    elif types.is_timestamp(kind):
        # To nanoseconds some moments do not fit; from them, a cast would lose digits in silence.
        column = column.cast(pa.timestamp("us")) if kind.unit != "ns" else column
        whole = pa.int64()
    elif types.is_time(kind):
        column, whole = column.cast(pa.time64("ns")), pa.int64()
    elif types.is_date(kind):
        column, whole = column.cast(pa.date32()).cast(pa.int32()), pa.int64()
    elif types.is_duration(kind):
        whole = pa.int64()
    else:
        raise Unsupported(
            f"Values of type {kind} have no checksum", hint="Cast them to strings or numbers"
        )
    found: np.ndarray[Any, Any] = column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _texts(column: pa.Array, offset: type[np.int32] | type[np.int64]) -> Hashes:
    """Hashes of texts or bytes: their words of eight bytes, by place, and their length."""
    if not len(column):
        return np.zeros(0, np.uint64)
    _, places, data = column.buffers()
    ends = np.frombuffer(places, offset)[column.offset : column.offset + len(column) + 1]
    first = int(ends[0])
    ends = ends.astype(np.int64) - first
    lengths = np.diff(ends)
    # The bytes of a null may be anything.
    there = np.frombuffer(data, np.uint8)[first : first + int(ends[-1])] if data else _NO_BYTES
    words = -(-lengths // _WORD)
    starts = np.concatenate([[0], np.cumsum(words)])
    padded = np.zeros(int(starts[-1]) * _WORD, np.uint8)
    shift = starts[:-1] * _WORD - ends[:-1]
    padded[np.arange(len(there)) + np.repeat(shift, lengths)] = there
    return _sequences(padded.view(np.uint64), words, lengths)


_NO_BYTES = np.zeros(0, np.uint8)


def _lists(column: pa.Array, *, ordered: bool = True) -> Hashes:
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    parts = column_hashes(column.flatten())  # without what a null may hold
    return _sequences(parts, lengths, lengths, ordered=ordered)


def _fixed(column: pa.Array, width: int) -> Hashes:
    data = column.buffers()[1]
    count = width // _WORD
    words = np.frombuffer(data, np.uint64)[column.offset * count :][: len(column) * count]
    return _together(list(words.reshape(-1, count).T), len(column))


def _sequences(
    words: Hashes,
    counts: np.ndarray[Any, Any],
    lengths: np.ndarray[Any, Any],
    *,
    ordered: bool = True,
) -> Hashes:
    """One hash of each run of so many words. A word at another place counts differently."""
    ends = np.cumsum(counts)
    place = np.arange(len(words)) - np.repeat(ends - counts, counts)
    if not ordered:
        place[:] = 0
    mixed = _mix(words ^ _place(place))
    # Differences of running sums, modulo 2^64: runs may be empty, which `reduceat` cannot add.
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    sums = running[ends] - running[ends - counts]
    return _mix(sums ^ _mix(lengths.astype(np.uint64)))


def _together(columns: list[Hashes], rows: int) -> Hashes:
    """One hash of the values of each row."""
    total = np.zeros(rows, np.uint64)
    for place, found in enumerate(columns):
        total += _mix(found ^ _place(np.full(1, place)))
    return _mix(total)


def _place(numbers: np.ndarray[Any, Any]) -> Hashes:
    """A number that tells a place from others.

    It must not be the hash of a small number: those of the columns a and b would be such that the
    values a, a in them have the hash of b, b.
    """
    return _mix(numbers.astype(np.uint64) ^ _PLACE)


def _mix(values: Hashes) -> Hashes:
    """SplitMix64's bijection: each bit of the result depends on each bit of the value."""
    found = values + _STEP
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


def _nulls(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found: np.ndarray[Any, np.dtype[np.bool_]] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _entry(kind: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])
