"""Checksums of the rows of a table, one for each range of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.schema.row_hashes import Hashes

RANGES = 1 << 12
"""Ranges of keys, by the first bits of the key's hash: the same ones in every store."""

_SHIFT = np.uint64(64 - 12)

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def range_of(keys: Hashes) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The range that each key is in, by its hash."""
    return (keys >> _SHIFT).astype(np.intp)


class Sums:
    """The number of rows in each range of keys, and the sum of their hashes modulo 2^64.

    They do not depend on the order in which rows come.
    """

    def __init__(self) -> None:
        self._rows = np.zeros(RANGES, np.int64)
        self._sums = np.zeros(RANGES, np.uint64)

    def add(self, keys: Hashes, rows: Hashes) -> None:
        """Count rows, given the hashes of their keys and of all their columns."""
        places = range_of(keys)
        self._rows += np.bincount(places, minlength=RANGES)
        np.add.at(self._sums, places, rows)

    @property
    def rows(self) -> int:
        """The number of rows in all ranges."""
        return int(self._rows.sum())

    @property
    def by_range(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of rows in each range."""
        return self._rows

    @property
    def total(self) -> str:
        """The checksum of all rows, for people."""
        return f"{int(self._sums.sum()):016x}"

    def differs(self, other: Sums) -> Mask:
        """True for each range in which two tables have other rows."""
        found: Mask = (self._rows != other._rows) | (self._sums != other._sums)
        return found
