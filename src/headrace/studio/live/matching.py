"""Filters of records, a whole Arrow column at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log import Batch
from headrace.schema.python_rows import to_values

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def matching(key: str, text: str) -> Callable[[Batch], Batch]:
    """A function that keeps the rows of a batch with a key and a text; empty ones match all."""
    if not key and not text:
        return lambda batch: batch

    def matched(batch: Batch) -> Batch:
        keep = np.ones(len(batch), np.bool_)
        if key:
            keep &= _key_is(batch, key)
        if text and keep.any():
            keep &= _has_text(batch, text)
        return _picked(batch, np.flatnonzero(keep))

    return matched


def _picked(batch: Batch, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Batch:
    return replace(
        batch,
        offsets=batch.offsets[rows],
        data=batch.data.take(pa.array(rows)),
        tombstones=None if batch.tombstones is None else batch.tombstones[rows],
        timestamps=None if batch.timestamps is None else batch.timestamps[rows],
    )


def _key_is(batch: Batch, key: str) -> Mask:
    name = "key" if batch.raw else batch.key
    if name is None:
        return np.zeros(len(batch), np.bool_)
    column = batch.data.column(batch.data.schema.get_field_index(name))
    if pa.types.is_binary(column.type):
        return _mask(pc.equal(column, pa.scalar(key.encode(), column.type)))
    return _mask(pc.equal(_text(column), key))


def _has_text(batch: Batch, text: str) -> Mask:
    found = np.zeros(len(batch), np.bool_)
    for column in batch.data.columns:
        if column.null_count < len(column):
            found |= _mask(pc.match_substring(_text(column), text, ignore_case=True))
    return found


def _text(column: pa.Array) -> pa.Array:
    """A column that text can be looked for in."""
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return column
    if not pa.types.is_nested(column.type):
        try:
            return column.cast(pa.string())
        except pa.ArrowException:
            pass
    values = (None if each is None else str(each) for each in to_values(column))
    return pa.array(values, pa.string())


def _mask(found: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask
