"""Invalid Arrow data is detected, and valid data passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.schema.soundness import first_unsound


def texts(
    kind: pa.DataType, offsets: list[int], data: bytes, valid: bytes | None = None
) -> pa.Array:
    """A column whose offsets are overwritten after Arrow validated them."""
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    buffer = np.zeros(len(offsets), np.int64 if wide else np.int32)
    made = pa.Array.from_buffers(
        kind,
        len(offsets) - 1,
        [None if valid is None else pa.py_buffer(valid), pa.py_buffer(buffer), pa.py_buffer(data)],
    )
    buffer[:] = offsets
    return made


def lists(offsets: list[int]) -> pa.Array:
    buffer = np.zeros(len(offsets), np.int32)
    made = pa.Array.from_buffers(
        pa.list_(pa.int32()),
        len(offsets) - 1,
        [None, pa.py_buffer(buffer)],
        children=[pa.array([1, 2, 3], pa.int32())],
    )
    buffer[:] = offsets
    return made


def too_long() -> pa.Array:
    """A decimal of 21 digits in a column for 5."""
    data = pa.py_buffer((10**20).to_bytes(16, "little"))
    return pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, data])


UNSOUND: dict[str, tuple[Any, str]] = {
    "bytes that are no text": (texts(pa.string(), [0, 2], b"a\xff"), "UTF8"),
    "half a letter": (texts(pa.string(), [0, 1, 2], "ü".encode()), "UTF8"),
    "large text": (texts(pa.large_string(), [0, 2], b"a\xff"), "UTF8"),
    "offsets backward": (texts(pa.string(), [0, 3, 1], b"abc"), "non-monotonic"),
    "bytes backward beside a null": (
        texts(pa.binary(), [0, 3, 1, 3], b"abc", valid=b"\x05"),
        "non-monotonic",
    ),
    "a negative offset": (texts(pa.binary(), [0, -2, 3], b"abc"), "offset"),
    "an offset outside": (texts(pa.binary(), [0, 2**30, 3], b"abc"), "offset"),
    "lists backward": (lists([0, 3, 1]), "non-monotonic"),
    "a list outside": (lists([0, 2**30, 3]), ""),
    "a long decimal": (too_long(), "precision"),
    "an unknown word": (
        pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["x"]), safe=False),
        "out of bounds",
    ),
    "text in a struct": (
        pa.StructArray.from_arrays([texts(pa.string(), [0, 2], b"a\xff")], ["x"]),
        "UTF8",
    ),
    "text in a struct of a struct": (
        pa.StructArray.from_arrays(
            [pa.StructArray.from_arrays([texts(pa.string(), [0, 2], b"a\xff")], ["x"])], ["y"]
        ),
        "UTF8",
    ),
    "the second row of a struct": (
        pa.StructArray.from_arrays([texts(pa.string(), [0, 1, 2, 3], b"a\xffb")], ["x"])[1:],
        "UTF8",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_column_that_is_not_what_it_says_is_named(name: str) -> None:
    column, why = UNSOUND[name]
    beside = pa.nulls(len(column), pa.string())
    for data in (
        pa.RecordBatch.from_arrays([beside, column], names=["a", "b"]),
        pa.Table.from_arrays([beside, column], names=["a", "b"]),
    ):
        found = first_unsound(data)
        assert found is not None
        assert found[0] == "b"
        assert why in found[1]


@given(st.lists(st.none() | st.text(max_size=5)), st.integers(0, 5), st.booleans())
def test_text_is_sound_wherever_it_is_cut(
    values: list[str | None], start: int, chunked: bool
) -> None:
    column = pa.array(values, pa.string()).slice(start)
    data = pa.table({"a": pa.chunked_array([column, column]) if chunked else column})
    assert first_unsound(data) is None


@given(st.lists(st.binary(max_size=3), max_size=4))
def test_bytes_are_sound_as_text_exactly_if_each_value_is_text(values: list[bytes]) -> None:
    column = pa.array(values, pa.binary()).view(pa.string())
    try:
        sound = bool([value.decode() for value in values]) or not values
    except UnicodeDecodeError:
        sound = False
    assert (first_unsound(pa.table({"a": column})) is None) == sound
