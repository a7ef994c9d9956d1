"""Grouping sets: each row is counted once for each set of keys, and keys outside of it are null.

They are an `explode` before the aggregation, so they need no engine of their own, and the law
counts the rows that they add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, ClassVar

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import names_column, not_there
from headrace.pipeline.row_steps import derive, explode, with_keys
from headrace.pipeline.stream import Stream
from headrace.pipeline.where import Where, caller, declared_at

GROUPING_ID = "grouping_id"
"""The key column with the set of a result, which has a bit for each column that is not in it."""


@dataclass(frozen=True)
class GroupingSets:
    """Several sets of columns to group by at once."""

    sets: tuple[tuple[str, ...], ...]
    noun: ClassVar[str] = "grouping sets"


By = str | GroupingSets | Sequence[str | GroupingSets]
"""The columns to group by, and grouping sets among them."""


@declaration
def grouping_sets(*sets: str | Sequence[str]) -> GroupingSets:
    """Group by each of these sets: `grouping_sets("item", ["item", "shop"], [])`."""
    made = tuple((one,) if isinstance(one, str) else tuple(one) for one in sets)
    if not made:
        raise InvalidPipeline(
            "There are no grouping sets", hint=f"grouping_sets('item', []). See {caller()}"
        )
    return GroupingSets(made)


@declaration
def rollup(*columns: str) -> GroupingSets:
    """Group by all columns, by all but the last, and so on, down to the total."""
    return grouping_sets(*(columns[:n] for n in range(len(columns), -1, -1)))


@declaration
def cube(*columns: str) -> GroupingSets:
    """Group by every subset of the columns."""
    sizes = range(len(columns), -1, -1)
    return grouping_sets(*chain.from_iterable(combinations(columns, size) for size in sizes))


def grouped(
    stream: Stream, by: By, aggregates: Mapping[str, Any], where: Where
) -> tuple[Stream, tuple[str, ...]]:
    """The rows of a stream with a key for each set, and the columns of that key."""
    given = (by,) if isinstance(by, str | GroupingSets) else tuple(by)
    if not any(isinstance(one, GroupingSets) for one in given):
        return with_keys(stream, [name for name in given if isinstance(name, str)], where)
    parts = [one.sets if isinstance(one, GroupingSets) else ((one,),) for one in given]
    sets = [tuple(chain.from_iterable(chosen)) for chosen in product(*parts)]
    columns = tuple(dict.fromkeys(chain.from_iterable(chain.from_iterable(parts))))
    ids = [_id(columns, one) for one in sets]
    if len(set(ids)) != len(ids):
        raise InvalidPipeline("A grouping set is given twice", hint=f"Leave one out. See {where}")
    for name in columns:
        if name not in stream.columns:
            raise not_there(f"There is no column {name!r}", name, stream.columns, where)
    if GROUPING_ID in stream.columns:
        raise InvalidPipeline(
            f"The column name {GROUPING_ID!r} is reserved for grouping sets",
            hint=f"Rename the column with select(). See {where}",
        )
    nulled = [name for name in columns if any(name not in one for one in sets)]
    for name in nulled:
        _check_unused(name, aggregates, where)
    made = {}
    for name in nulled:
        kept = ", ".join(str(n) for n, one in zip(ids, sets, strict=True) if name in one)
        made[name] = f"CASE WHEN {GROUPING_ID} IN ({kept}) THEN `{name}` END" if kept else "NULL"
    with declared_at(where):
        rows = explode(stream, f"array({', '.join(map(str, ids))})", into=GROUPING_ID)
        return derive(rows, **made), (*columns, GROUPING_ID)


def _id(columns: Sequence[str], kept: Sequence[str]) -> int:
    """A bit for each column that is not kept, the last column's the lowest, as in Spark."""
    return sum(1 << n for n, name in enumerate(reversed(columns)) if name not in kept)


def _check_unused(name: str, aggregates: Mapping[str, Any], where: Where) -> None:
    for called, made in aggregates.items():
        if names_column(made.of, name, where):
            raise InvalidPipeline(
                f"{called!r} is computed from {name!r}, which is null outside of its grouping sets",
                hint=f"Copy the column first: derive(stream, copy='{name}'). See {where}",
            )
