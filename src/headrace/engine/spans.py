"""From when to when each version of a table is valid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.changes import FROM, ORDER
from headrace.engine.lateness import Moments

SINCE, UNTIL = "_since", "_until"

_FOR_EVER = (1 << 63) - 1
_NEVER = -(1 << 63)


def spans(versions: pa.Table, keys: Sequence[str], *, latest: bool = False) -> pa.Table:
    """The versions that are ever valid, each until the next of its key; or the `latest` of each.

    One whose beginning nobody knows is valid for no moment.
    """
    since = _numbers(versions, FROM)
    codes = [_codes(versions.column(name)) for name in keys]
    others = [_numbers(versions, name) for name in ORDER[1:]]
    order = np.lexsort([*reversed([since, *others]), *codes])
    same = np.zeros(len(order), bool)
    same[:-1] = np.logical_and.reduce([code[order][1:] == code[order][:-1] for code in codes])
    since = since[order]
    until = np.where(same, np.roll(since, -1), _FOR_EVER)
    kept = ~same if latest else (since < until) & (since > _NEVER)
    made = versions.take(pa.array(order[kept]))
    return made.append_column(SINCE, pa.array(since[kept])).append_column(
        UNTIL, pa.array(until[kept])
    )


def _numbers(versions: pa.Table, name: str) -> Moments:
    """A column of whole numbers, of which what is not known is the least."""
    column = pc.fill_null(versions.column(name).cast(pa.int64()), _NEVER)
    found: Moments = column.to_numpy()
    return found


def _codes(column: pa.ChunkedArray) -> Moments:
    """A number for each value. To Spark zero is zero, whatever its sign."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)
    codes = column.combine_chunks().dictionary_encode()
    found: Moments = _chunk(codes).indices.to_numpy().astype(np.int64)
    return found


def _chunk(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
