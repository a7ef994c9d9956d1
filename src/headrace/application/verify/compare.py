"""Comparison of two tables: by sums of ranges first, and row by row only where these differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.application.verify.sides import Side
from headrace.application.verify.sums import RANGES, Mask, Sums, range_of
from headrace.schema.row_hashes import Hashes, row_hashes

Kind = Literal["missing", "extra", "different"]
KINDS: tuple[Kind, ...] = ("missing", "extra", "different")

Pace = Callable[[int], None]
"""Called with the rows of each batch that is read; it may sleep, so that others get their turn."""

_KEYS_AT_ONCE = 2_000_000
"""Rows of differing ranges that are compared at once: some 32 bytes each, and their keys."""


@dataclass(frozen=True)
class Suspects:
    """Keys whose rows differ between two tables, and the kind of each difference."""

    keys: pa.Table
    hashes: Hashes
    kinds: np.ndarray[Any, np.dtype[np.int8]]

    def __len__(self) -> int:
        return len(self.hashes)

    def only(self, mask: Mask) -> Suspects:
        """Some of them."""
        return Suspects(self.keys.filter(pa.array(mask)), self.hashes[mask], self.kinds[mask])

    def count(self, kind: Kind) -> int:
        return int((self.kinds == KINDS.index(kind)).sum())


@dataclass(frozen=True)
class Compared:
    """The outcome of one comparison."""

    one: Sums
    other: Sums
    differing: int
    """Ranges that differ."""
    suspects: Suspects = field(repr=False)


def compare(
    one: Side, other: Side, scope: pa.Table | None = None, pace: Pace = lambda rows: None
) -> Compared:
    """Compare two tables, or in the scope of some keys alone."""
    sums = [_sums(side, scope, pace) for side in (one, other)]
    differs = sums[0].differs(sums[1])
    found = [_suspects(one, other, mask, scope, pace) for mask in _groups(differs, sums)]
    return Compared(sums[0], sums[1], int(differs.sum()), together(one, found))


def together(side: Side, parts: Iterable[Suspects]) -> Suspects:
    """All of several suspects, of a table with these key columns."""
    schema = side.key_columns
    several = list(parts)
    return Suspects(
        pa.concat_tables([schema.empty_table(), *(part.keys for part in several)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.hashes for part in several)]),
        np.concatenate([np.zeros(0, np.int8), *(part.kinds for part in several)]),
    )


def _sums(side: Side, scope: pa.Table | None, pace: Pace) -> Sums:
    found = Sums()
    for batch in side.rows() if scope is None else side.find(scope):
        found.add(row_hashes(batch.select(side.key)), row_hashes(batch))
        pace(len(batch))
    return found


def _groups(differs: Mask, sums: list[Sums]) -> Iterable[Mask]:
    """The differing ranges, in groups whose rows fit into memory."""
    rows = np.maximum(sums[0].by_range, sums[1].by_range)
    places = np.flatnonzero(differs)
    group = np.cumsum(rows[places]) // _KEYS_AT_ONCE
    for number in np.unique(group):
        mask: Mask = np.zeros(RANGES, np.bool_)
        mask[places[group == number]] = True
        yield mask


@dataclass(frozen=True)
class _Rows:
    """The rows of a table in some ranges: each key once, with the sum of its rows' hashes."""

    hashes: Hashes
    sums: Hashes
    keys: pa.Table


def _suspects(one: Side, other: Side, mask: Mask, scope: pa.Table | None, pace: Pace) -> Suspects:
    mine, theirs = (_rows(side, mask, scope, pace) for side in (one, other))
    missing = ~np.isin(mine.hashes, theirs.hashes)
    extra = ~np.isin(theirs.hashes, mine.hashes)
    places = np.searchsorted(theirs.hashes, mine.hashes[~missing])
    changed = np.zeros(len(mine.hashes), np.bool_)
    changed[~missing] = mine.sums[~missing] != theirs.sums[places]
    return together(
        one,
        (
            Suspects(
                rows.keys.filter(pa.array(which)),
                rows.hashes[which],
                np.full(int(which.sum()), KINDS.index(kind), np.int8),
            )
            for rows, which, kind in (
                (mine, missing, "missing"), (theirs, extra, "extra"), (mine, changed, "different"),
            )
        ),
    )  # fmt: skip


def _rows(side: Side, mask: Mask, scope: pa.Table | None, pace: Pace) -> _Rows:
    schema = side.key_columns
    hashes, sums, keys = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)], [schema.empty_table()]
    for batch in side.rows() if scope is None else side.find(scope):
        key = batch.select(side.key)
        found = row_hashes(key)
        there = mask[range_of(found)]
        if there.any():
            some = pa.array(there)
            hashes.append(found[there])
            sums.append(row_hashes(batch.filter(some)))
            keys.append(pa.Table.from_batches([key.filter(some)]).cast(schema))
        pace(len(batch))
    each, first, places = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    added, rows = np.zeros(len(each), np.uint64), np.concatenate(sums)
    # A row that is there twice has twice the sum, and so is not what it should be.
    np.add.at(added, places, rows)
    return _Rows(each, added, pa.concat_tables(keys).take(first))
