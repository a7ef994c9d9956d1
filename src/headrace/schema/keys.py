"""Integer codes for keys, so that NumPy can group, sort and look up rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Codes = np.ndarray[Any, np.dtype[np.int64]]


def coded(
    tables: Sequence[pa.Table], keys: Sequence[str], *, in_order: bool = True
) -> tuple[list[Codes], int]:
    """The code of each row's key, per table, and the number of distinct keys.

    Equal keys have equal codes. Codes are in the order of the keys, with nulls last; sorting takes
    most of the time, and `in_order=False` skips it.
    """
    codes: Codes = np.zeros(sum(table.num_rows for table in tables), np.int64)
    for number, key in enumerate(keys):
        ranks, count = _ranks([table.column(key) for table in tables], in_order=in_order)
        codes = codes * count + ranks
        if number:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    count = int(codes.max()) + 1 if len(codes) else 0
    cuts = np.cumsum([table.num_rows for table in tables])[:-1]
    return list(np.split(codes, cuts)), count


def as_spark_compares(keys: pa.Table) -> pa.Table:
    """Keys normalized to Spark's equality, in which -0.0 equals 0.0."""
    for number, column in enumerate(keys.columns):
        if pa.types.is_floating(column.type):
            keys = keys.set_column(number, keys.field(number), pc.add(column, 0.0))
    return keys


def _ranks(columns: Sequence[pa.ChunkedArray], *, in_order: bool) -> tuple[Codes, int]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    if not sum(map(len, chunks)):
        return np.zeros(0, np.int64), 1
    whole = pa.chunked_array(chunks).dictionary_encode("encode").combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # pyarrow returns either, by number of chunks
        whole = whole.chunk(0)
    indices = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if not in_order:
        return indices, len(whole.dictionary)
    order = pc.sort_indices(whole.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[indices], len(order)


def first_of_each(codes: Codes) -> Codes:
    """The index of the first occurrence of each code in sorted codes."""
    if not len(codes):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
