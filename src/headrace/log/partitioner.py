"""Kafka's key partitioning, so that a key is in the same partition here and on a broker.

A key is serialized as Kafka's standard serializers do (`key_bytes`) and hashed by murmur2; the hash
gives the partition (`partition_of`, or `partition_column` for many keys).
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from headrace.errors import InvalidSchema, InvalidSetting, NullKey, WrongType

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

# Keys hashed at once: few enough that all arrays of a round stay in the processor's cache.
_BLOCK = 16_384
_SAMPLE = 4_096

# For the 0 to 3 bytes after a key's last whole word: their mask in a word, and their factor.
_TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_TAIL_FACTOR = np.array([1, _M, _M, _M], np.uint32)

_BYTES = (pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view())
_INTEGER_WIDTH = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java client, signed like Java's `int`."""
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _WORD
        k = (k ^ k >> _R) * _M & _WORD
        h = h * _M & _WORD ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    h ^= h >> 15
    return h - (1 << 32) if h > _POSITIVE else h


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    _check_count(partitions)
    return (murmur2(key) & _POSITIVE) % partitions


def partition_column(keys: pa.Array, partitions: int) -> NDArray[np.int32]:
    """The partition of each key in a column that `key_bytes` accepts; -1 for a null key."""
    _check_count(partitions)
    if types.is_dictionary(keys.type):
        # The last entry is for null keys: the index -1 finds it.
        found = np.append(partition_column(keys.dictionary, partitions), np.int32(-1))
        codes: NDArray[np.int64] = keys.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return found[codes]
    raw = key_bytes(keys)
    if raw.null_count:
        column = np.full(len(raw), -1, np.int32)
        valid = raw.is_valid().to_numpy(zero_copy_only=False)
        column[valid] = partition_column(raw.drop_null(), partitions)
        return column
    if len(raw) == 0:
        return np.empty(0, np.int32)
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1]
    lengths = np.diff(offsets)
    if lengths.min() != lengths.max() and _repeats(raw):
        return partition_column(raw.dictionary_encode(), partitions)
    return _spread(_hashes(raw.buffers()[2], offsets, lengths), partitions)


def key_bytes(keys: pa.Array) -> pa.Array:
    """The keys as Kafka's standard serializers write them, in a binary column.

    Text is UTF-8, numbers are big-endian. Kafka has no serializer for some types: a date is
    written as its int of days, a timestamp as its long of microseconds, a decimal as its text.
    """
    kind = keys.type
    if types.is_dictionary(kind):
        return key_bytes(keys.dictionary_decode())
    if types.is_binary(kind):
        return keys
    if kind in _BYTES or types.is_fixed_size_binary(kind):
        return keys.cast(pa.binary())
    if types.is_decimal(kind):
        return _decimal_text(keys).cast(pa.binary())
    if types.is_boolean(kind):
        return _big_endian(keys.cast(pa.int8()))
    if types.is_date32(kind):
        return _big_endian(keys.cast(pa.int32()))
    if types.is_timestamp(kind) and kind.unit == "us":
        return _big_endian(keys.cast(pa.int64()))
    if kind in _INTEGER_WIDTH or types.is_float32(kind) or types.is_float64(kind):
        return _big_endian(keys)
    raise InvalidSchema(
        f"A column of type {kind} cannot be a key",
        hint="Use a string, binary, number, boolean, date or timestamp column",
        type=str(kind),
    )


def key_bytes_of(value: Any, type: pa.DataType) -> bytes:
    """One key of a column of this type, as `key_bytes` writes it."""
    if value is None:
        raise NullKey("The key is null", hint="Give the record a key")
    try:
        # A fast path for the usual types of keys, without an array for each.
        if isinstance(value, str) and types.is_string(type):
            return value.encode()
        if isinstance(value, bytes) and types.is_binary(type):
            return value
        if value.__class__ is int and type in _INTEGER_WIDTH:
            return value.to_bytes(_INTEGER_WIDTH[type], "big", signed=True)
        raw: bytes = key_bytes(pa.array([value], type))[0].as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise WrongType(
            f"A key of Python type {value.__class__.__name__} does not fit a column of {type}",
            hint="Convert it to the type and range of the key column",
        ) from error
    return raw


def key_of_bytes(data: bytes, type: pa.DataType) -> Any:
    """The inverse of `key_bytes_of`: a key of a column of this type, from its bytes."""
    if types.is_string(type):
        return data.decode()
    if types.is_binary(type):
        return data
    if types.is_decimal(type):
        return pa.scalar(data.decode(), pa.string()).cast(type).as_py()
    kind = pa.int8() if types.is_boolean(type) else type
    if types.is_date32(type):
        kind = pa.int32()
    if types.is_timestamp(type):
        kind = pa.int64()
    plain = np.dtype(kind.to_pandas_dtype()).newbyteorder(">")
    if len(data) != plain.itemsize:
        raise ValueError(f"{len(data)} bytes are not a valid {type}")
    value = np.frombuffer(data, plain).astype(plain.newbyteorder("="))
    return pa.array(value).cast(type)[0].as_py()


def _check_count(partitions: int) -> None:
    if partitions < 1:
        raise InvalidSetting(
            f"The number of partitions cannot be {partitions}", hint="A topic has 1 or more"
        )


def _repeats(keys: pa.Array) -> bool:
    """True if keys repeat so often, by a sample, that a dictionary is cheaper than hashing each.

    This holds only for keys of mixed length: keys of one length hash faster than a look-up.
    """
    if len(keys) < 4 * _SAMPLE:
        return False
    sample = keys.take(pa.array(np.linspace(0, len(keys) - 1, _SAMPLE, dtype=np.int64)))
    return bool(pc.count_distinct(sample).as_py() * 4 <= _SAMPLE)


def _spread(hashes: NDArray[np.uint32], partitions: int) -> NDArray[np.int32]:
    # numpy's division by a scalar is many times faster than its remainder.
    hashes &= np.uint32(_POSITIVE)
    quotient = hashes // np.uint32(partitions)
    quotient *= np.uint32(partitions)
    hashes -= quotient
    return hashes.view(np.int32)


def _hashes(
    data: pa.Buffer | None, offsets: NDArray[np.int32], lengths: NDArray[np.int32]
) -> NDArray[np.uint32]:
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    hashes = np.empty(len(lengths), np.uint32)
    for start in range(0, len(lengths), _BLOCK):
        block = slice(start, start + _BLOCK)
        some = lengths[block]
        first, last = offsets[start], offsets[start + len(some)]
        if some.min() == some.max():
            _hash_rows(content[first:last], int(some[0]), hashes[block])
        else:
            hashes[block] = _hash_mixed(content[first:last], offsets[block] - first, some)
    return hashes


def _hash_rows(content: NDArray[np.uint8], length: int, h: NDArray[np.uint32]) -> None:
    """Hash contiguous keys of one length into `h`."""
    whole = length & ~3
    words = np.ndarray((len(h), whole // 4), "<u4", content, strides=(length, 4))
    h[:] = _SEED ^ length
    for at in range(whole // 4):
        _mix(h, words[:, at].astype(np.uint32))
    for at in range(whole, length):
        h ^= content[at::length].astype(np.uint32) << np.uint32(8 * (at - whole))
    if whole < length:
        h *= np.uint32(_M)
    _finish(h)


def _hash_mixed(
    content: NDArray[np.uint8], starts: NDArray[np.int32], lengths: NDArray[np.int32]
) -> NDArray[np.uint32]:
    """Hash keys of any lengths, longest first, so that each round works on a prefix of them."""
    longest = lengths.max()
    # numpy sorts integers of 8 and 16 bits by radix, several times faster than wider ones.
    order = np.argsort((longest - lengths).astype(np.min_scalar_type(longest)), kind="stable")
    # A word can start at any byte. The last key's tail is read past its end, hence the padding.
    roomy = np.append(content, np.zeros(4, np.uint8))
    words = np.ndarray(len(content) + 1, "<u4", roomy, strides=(1,))
    at = starts[order].astype(np.intp)
    lengths = lengths[order]
    h = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    with_words = np.bincount(lengths >> 2)[::-1].cumsum()[::-1]
    for count in with_words[1:]:
        _mix(h[:count], words[at[:count]])
        at[:count] += 4
    tail = lengths & 3
    h ^= words[at] & _TAIL_MASK[tail]
    h *= _TAIL_FACTOR[tail]
    _finish(h)
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


def _mix(h: NDArray[np.uint32], k: NDArray[np.uint32]) -> None:
    k *= np.uint32(_M)
    k ^= k >> np.uint32(_R)
    k *= np.uint32(_M)
    h *= np.uint32(_M)
    h ^= k


def _finish(h: NDArray[np.uint32]) -> None:
    h ^= h >> np.uint32(13)
    h *= np.uint32(_M)
    h ^= h >> np.uint32(15)


def _big_endian(keys: pa.Array) -> pa.Array:
    values = keys.fill_null(0).to_numpy()
    if values.dtype == np.float64:
        # Kafka's DoubleSerializer writes the same NaN for all; its FloatSerializer does not.
        values = np.where(np.isnan(values), np.nan, values)
    swapped = values.astype(values.dtype.newbyteorder(">"))
    valid = None
    if keys.null_count:
        bits = keys.is_valid().to_numpy(zero_copy_only=False)
        valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
    fixed = pa.Array.from_buffers(
        pa.binary(values.dtype.itemsize), len(keys), [valid, pa.py_buffer(swapped)]
    )
    return fixed.cast(pa.binary())


def _decimal_text(keys: pa.Array) -> pa.Array:
    # Arrow writes 0.0000001 as 1E-7 and, with a scale of -2, 100 as 1E+2.
    if 0 <= keys.type.scale <= 6:
        return keys.cast(pa.string())
    return pa.array([None if v is None else f"{v:f}" for v in keys.to_pylist()], pa.string())
