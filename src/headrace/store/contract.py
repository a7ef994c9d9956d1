"""The contract of a store that a view can live in.

SQLite keeps an application's state and its views. Any other store follows the changelog of a view:
it applies changes and its position in the changelog in one transaction, so each change is applied
once, whatever dies. A store knows nothing of operators.

`headrace.store.suite` has the laws of a store as tests, for stores of your own as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.closing import Closing
from headrace.pipeline.stores import DeclaredStore
from headrace.schema.row_hashes import row_hashes


@dataclass(frozen=True)
class StoredView:
    """A view as a store sees it: its name, the columns of its rows, and those of its key.

    Values of the key may be null. `folder` is for stores that keep files of their own beside the
    log. All applications of the log share it, and it may not exist yet.
    """

    app: str
    name: str
    columns: pa.Schema
    key: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class StorePosition:
    """The position of a store in the changelog of a view.

    `offset` is the next one of the changelog. `generation` names the results that the changelog is
    of, and how the store keeps them. If it is another one, the view is built again.
    """

    generation: str
    offset: int


@dataclass(frozen=True)
class Steps:
    """Every change in order, for a store that keeps a history: each row with its key and time.

    A deleted row has its last values.
    """

    rows: pa.Table
    keys: pa.StringArray
    times: pa.TimestampArray
    deleted: pa.BooleanArray


@dataclass(frozen=True)
class Changes:
    """Changes of a view, at most one for each key: rows to keep, and keys to delete.

    `rows` has the view's columns, and `deleted` those of its key. `keys` and `versions` have an
    entry for each row and then for each deleted key: the key as a text that no other key has, and a
    number that grows with every change of the key. A store that cannot apply all of them at once
    uses it to refuse older ones.
    """

    rows: pa.Table
    deleted: pa.Table
    keys: pa.StringArray
    versions: pa.Int64Array
    position: StorePosition
    steps: Steps | None = None
    """The changes before they were collapsed, if the store asks for `every_change`."""

    def __len__(self) -> int:
        return len(self.keys)


class StoreTable(Closing):
    """One version of a view in a store. One thread uses it."""

    @abstractmethod
    def position(self) -> StorePosition | None:
        """The position; None if it was never filled."""

    @abstractmethod
    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        """Load a version that was built beside, and record its position after the last part.

        Each key comes once, and none is deleted. Nobody reads the version yet, so it need not be
        one transaction; it has no position until all of it is there.
        """

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Apply changes and their position, all or nothing.

        Changes that do not go beyond its position are ignored: a crash may hide that they were
        applied. Raises `StoreFenced` if its position is of another generation, and
        `StoreUnavailable` if the store is down; then the caller tries again.
        """

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Every row with the view's columns, in any order, some at a time."""

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows with these keys, those that are there, given the columns of the view's key.

        This reads every row. A store that can look them up should.
        """
        wanted = row_hashes(keys)
        for batch in self.read():
            there = np.isin(row_hashes(batch.select(keys.column_names)), wanted)
            if there.any():
                yield batch.filter(pa.array(there))


class Store(DeclaredStore):
    """A place for views: a small frozen value that a user writes, or the address of one.

    It has an `address`, can be pickled, and opens nothing by itself. Its methods raise
    `StoreUnavailable` if it is down, and another `StoreError` if it refuses.
    """

    @property
    def form(self) -> str:
        """The settings that decide how rows are kept. A change builds the view again."""
        return ""

    @property
    def expires(self) -> bool:
        """True if rows disappear by themselves, so that one that is missing is no damage."""
        return False

    @property
    def every_change(self) -> bool:
        """True if it wants every change of a key, and not the last one alone: `Changes.steps`."""
        return False

    def check(self, view: StoredView) -> None:
        """Raise `InvalidPipeline` if it cannot keep such a view. It connects to nothing."""

    @abstractmethod
    def live(self, view: StoredView) -> StoreTable:
        """The version of a view that readers see. It may be empty, without a position."""

    @abstractmethod
    def beside(self, view: StoredView) -> StoreTable:
        """A new, empty version of a view, which no reader sees. Any unfinished one is removed."""

    @abstractmethod
    def switch(self, view: StoredView) -> None:
        """Let readers see the version built beside, from one moment to the next.

        The old one is removed. Doing it again, after a crash, finishes what was begun; without a
        finished version beside, nothing changes.
        """

    @abstractmethod
    def remove(self, view: StoredView) -> None:
        """Remove every trace of a view."""
