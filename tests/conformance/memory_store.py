"""A store in memory: the contract in its shortest form."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import StoreFenced, StoreUnavailable
from headrace.store.contract import Changes, Store, StoredView, StorePosition, StoreTable


@dataclass
class Version:
    """The rows of one version of a view by key, and its position."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    position: StorePosition | None = None


@dataclass(eq=False)
class Shelf:
    """What the memory holds: versions of views, seen by readers or not."""

    live: dict[tuple[str, str], Version] = field(default_factory=dict)
    beside: dict[tuple[str, str], Version] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    down: bool = False
    applied: int = 0


class MemoryTable(StoreTable):
    """One version of a view."""

    def __init__(self, shelf: Shelf, view: StoredView, built: Version | None = None) -> None:
        self._shelf = shelf
        self._view = view
        self._built = built

    def position(self) -> StorePosition | None:
        return self._version.position

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        version = self._version
        for part in parts:
            version.rows.update(_rows(part))
        version.position = position

    def apply(self, changes: Changes) -> None:
        version, reached = self._version, self._version.position
        if reached is None or reached.generation != changes.position.generation:
            raise StoreFenced("Another process follows the view")
        if changes.position.offset <= reached.offset:
            return
        rows = {**version.rows, **_rows(changes)}
        for key in changes.keys.to_pylist()[changes.rows.num_rows :]:
            rows.pop(key, None)
        version.rows, version.position = rows, changes.position
        self._shelf.applied += 1

    def read(self) -> Iterator[pa.RecordBatch]:
        rows = list(self._version.rows.values())
        yield from pa.concat_tables(rows or [self._view.columns.empty_table()]).to_batches()

    def close(self) -> None:
        pass

    @property
    def _version(self) -> Version:
        if self._shelf.down:
            raise StoreUnavailable("The memory is down", hint="Wait until it is back")
        if self._built is not None:
            return self._built
        return self._shelf.live.setdefault((self._view.app, self._view.name), Version())


def _rows(changes: Changes) -> dict[str, pa.Table]:
    keys = changes.keys.to_pylist()[: changes.rows.num_rows]
    return {key: changes.rows.slice(place, 1) for place, key in enumerate(keys)}


@dataclass(frozen=True)
class MemoryStore(Store):
    """A store that ends with its process."""

    shelf: Shelf = field(default_factory=Shelf)
    name: str = "memory"
    settings: str = ""

    @property
    def address(self) -> str:
        return f"{self.name}:"

    @property
    def form(self) -> str:
        return self.settings

    def live(self, view: StoredView) -> StoreTable:
        return MemoryTable(self.shelf, view)

    def beside(self, view: StoredView) -> StoreTable:
        built = self.shelf.beside[view.app, view.name] = Version()
        return MemoryTable(self.shelf, view, built)

    def switch(self, view: StoredView) -> None:
        place = view.app, view.name
        built = self.shelf.beside.get(place)
        if built is not None and built.position is not None:
            self.shelf.live[place] = self.shelf.beside.pop(place)

    def remove(self, view: StoredView) -> None:
        self.shelf.live.pop((view.app, view.name), None)
        self.shelf.beside.pop((view.app, view.name), None)
