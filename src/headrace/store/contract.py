"""What a store has to do, so that a view can live in it.

SQLite keeps an application's state and its views. Any other store follows the changelog of a view:
it applies changes and its position in the changelog in one transaction, so each change is applied
once, whatever dies. A store knows nothing of operators.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.closing import Closing


@dataclass(frozen=True)
class StoredView:
    """A view as a store sees it: its name, the columns of its rows, and those of its key."""

    app: str
    name: str
    columns: pa.Schema
    key: tuple[str, ...]


@dataclass(frozen=True)
class StorePosition:
    """How far a store has followed a view.

    `offset` is the next one of the changelog. `generation` names the results that the changelog is
    of: an application that begins anew has another, and its stores are built again.
    """

    generation: str
    offset: int


@dataclass(frozen=True)
class Changes:
    """Changes of a view, at most one for each key: rows to keep, and keys to delete.

    `versions` has a number for each row and then for each deleted key, which grows with every
    change of a key. A store that cannot apply all of them at once uses it to refuse older ones.
    """

    rows: pa.Table
    deleted: pa.Table
    versions: pa.Int64Array
    position: StorePosition


class StoreTable(Closing):
    """One version of a view in a store."""

    @abstractmethod
    def position(self) -> StorePosition | None:
        """How far it is; None if nothing was applied yet."""

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Apply changes and their position, all or nothing.

        Applying them again changes nothing: a crash may hide that they were applied. Raises
        `StoreUnavailable` if the store is down; the caller tries again.
        """

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Every row with the view's columns, in any order, some at a time."""


class Store(Protocol):
    """A place for views: a small frozen value that a user writes, or the address of one."""

    @property
    def address(self) -> str:
        """The address, without secrets, for people."""

    def live(self, view: StoredView) -> StoreTable:
        """The version of a view that readers see. It may be empty."""

    def beside(self, view: StoredView) -> StoreTable:
        """A new, empty version of a view, which no reader sees. Any unfinished one is removed."""

    def switch(self, view: StoredView) -> None:
        """Let readers see the version built beside, from one moment to the next.

        The old one is removed. Doing it again, after a crash, finishes what was begun.
        """

    def remove(self, view: StoredView) -> None:
        """Remove every trace of a view."""
