"""Views, rows and changes that the laws of a store are about."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.store.changelog import key_texts
from headrace.store.contract import Changes, Store, StoredView, StorePosition, StoreTable

Row = Mapping[str, Any]

ONE = "one"
"""The generation of the results in most tests."""
KEYS = 200


def changes_of(
    view: StoredView,
    rows: Sequence[Row],
    deleted: Sequence[Row] = (),
    *,
    at: int | None = None,
    version: int | None = None,
    generation: str = ONE,
) -> Changes:
    """Changes up to an offset: that of the first row's revision, if none is given."""
    key = pa.schema([view.columns.field(name) for name in view.key])
    kept = pa.Table.from_pylist(list(map(dict, rows)), schema=view.columns)
    gone = pa.Table.from_pylist(list(map(dict, deleted)), schema=key)
    keys = pa.concat_tables([kept.select(list(view.key)), gone])
    offset = at if at is not None else int(rows[0]["revision"])
    return Changes(
        kept,
        gone,
        key_texts(keys) if keys.num_rows else pa.array([], pa.string()),
        pa.array([offset if version is None else version] * keys.num_rows, pa.int64()),
        StorePosition(generation, offset),
    )


def rows_of(table: StoreTable) -> list[dict[str, Any]]:
    """Every row of a version, by its first column."""
    found = [row for batch in table.read() for row in batch.to_pylist()]
    first = [next(iter(row)) for row in found][:1]
    return (
        sorted(found, key=lambda row: (row[first[0]] is not None, row[first[0]])) if first else []
    )


def comparable(row: Row) -> dict[str, Any]:
    """A row in which NaN equals itself, and floats differ from decimals."""
    return {n: repr(v) if isinstance(v, float | Decimal) else v for n, v in row.items()}


def position_at(offset: int, generation: str = ONE) -> StorePosition:
    return StorePosition(generation, offset)


def orders_view(
    folder: Path, columns: pa.Schema | None = None, key: tuple[str, ...] = ("id",)
) -> StoredView:
    columns = columns or pa.schema(
        [("id", pa.int64()), ("n", pa.int64()), ("revision", pa.int64())]
    )
    return StoredView("shop", "orders", columns, key, folder / "stores")


def order(id: int, number: int) -> dict[str, Any]:
    return {"id": id, "n": number, "revision": number}


def orders(number: int, count: int) -> list[dict[str, Any]]:
    return [order(id, number) for id in range(count)]


def parts_of(view: StoredView, rows: Sequence[Row], size: int = 1_000) -> Iterator[Changes]:
    for first in range(0, len(rows), size):
        yield changes_of(view, rows[first : first + size], at=0)


def fill(store: Store, view: StoredView, rows: Sequence[Row], position: StorePosition) -> None:
    with store.beside(view) as built:
        built.fill(parts_of(view, rows), position)
    store.switch(view)


def filled(store: Store, folder: Path, rows: Sequence[Row]) -> StoredView:
    view = orders_view(folder)
    fill(store, view, rows, position_at(7))
    return view


@contextlib.contextmanager
def reading(store: Store, view: StoredView) -> Iterator[list[list[int]]]:
    """Read a view in another thread, over and over; the numbers of each reading."""
    seen: list[list[int]] = []
    failures: list[BaseException] = []
    done, begun = threading.Event(), threading.Event()

    def look() -> None:
        try:
            with store.live(view) as live:
                while not done.is_set():
                    seen.append([n for batch in live.read() for n in batch["n"].to_pylist()])
                    begun.set()
        except BaseException as failure:
            failures.append(failure)
            begun.set()

    reader = threading.Thread(target=look)
    reader.start()
    try:
        begun.wait()
        yield seen
    finally:
        done.set()
        reader.join()
    assert not failures, failures
    assert seen


def apply_forever(store: Store, view: StoredView, told: Any) -> None:
    """Apply one change after another, in a process that is killed."""
    with store.live(view) as live:
        reached = live.position()
        assert reached is not None
        offset = reached.offset
        while True:
            offset += 1
            live.apply(changes_of(view, orders(offset, KEYS)))
            told.send(offset)
