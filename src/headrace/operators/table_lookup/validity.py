"""From when to when each version of a table is valid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.lateness import Moments
from headrace.plan.table_changes import ORDER
from headrace.schema.keys import as_spark_compares, coded

SINCE, UNTIL = "_since", "_until"

_FOR_EVER = (1 << 63) - 1
_NEVER = -(1 << 63)


def validity(versions: pa.Table, keys: Sequence[str], *, latest: bool = False) -> pa.Table:
    """The versions that are ever valid, each until the next of its key; or the `latest` of each.

    One whose beginning nobody knows is valid for no moment.
    """
    since, *others = (_numbers(versions, name) for name in ORDER)
    (key,), _ = coded([as_spark_compares(versions.select(keys))], keys, in_order=False)
    order = np.lexsort([*reversed([since, *others]), key])
    since, key = since[order], key[order]
    same = np.append(key[1:] == key[:-1], False)[: len(order)]
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
