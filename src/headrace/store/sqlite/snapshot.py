"""The rows of a view as one snapshot, in the columns of its changelog, to fill a store with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pyarrow as pa

from headrace.plan import metadata
from headrace.store.sqlite.difference import version_in
from headrace.store.sqlite.stored import looking
from headrace.store.sqlite.values import quoted, tables_from

_LIVE = "live"


@dataclass(frozen=True)
class Results:
    """The results that an application has stored: their generation, and the key of one view."""

    generation: str
    key: tuple[str, ...]


def results_in(path: Path, view: str) -> Results | None:
    """The results of a view in a database; None if there are none yet."""
    if not path.exists():
        return None
    with looking(live=path) as db:
        db.execute("BEGIN")
        return _results(db, view)


def _results(db: apsw.Connection, view: str) -> Results | None:
    tables = {str(name) for (name,) in db.execute(f"SELECT name FROM {_LIVE}.sqlite_schema")}
    if not {"_headrace_app", "_headrace_view"} <= tables:
        return None  # it is being created
    version = version_in(db, _LIVE, view)
    if version is None:
        return None
    generation = str(db.execute(f"SELECT generation FROM {_LIVE}._headrace_app").get)
    return Results(generation, version.key)


@contextlib.contextmanager
def snapshot_of(
    path: Path, view: str, columns: pa.Schema
) -> Iterator[tuple[Results | None, Iterator[pa.Table]]]:
    """The results of a view and all its rows, as of one moment, some at a time."""
    with looking(live=path) as db:
        db.execute("BEGIN")
        yield _results(db, view), _rows(db, view, columns)


def _rows(db: apsw.Connection, view: str, columns: pa.Schema) -> Iterator[pa.Table]:
    version = version_in(db, _LIVE, view)
    assert version is not None
    named = [metadata.REVISION if name == "revision" else name for name in columns.names]
    listed = ", ".join(f"n.{quoted(name)}" for name in named)
    rows = db.execute(f"SELECT {listed} FROM {version.table} n WHERE {version.seen('n')}")
    yield from tables_from(rows, columns)
