"""Read-only access to the steps in an application's database."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headrace.plan.position import Positions, positions_from_json
from headrace.sqlite import Link, connect
from headrace.store.sqlite.database import APPLICATION, FORMAT, check_format, failures
from headrace.store.sqlite.values import quoted

PATIENCE = 10.0
"""Seconds to wait for a database that is being created; later, writers block no reader."""
SWITCHES = "_headrace_switch"
"""The table of steps whose results are switched, and whose checkpoints are not yet."""


@dataclass(frozen=True)
class StoredStep:
    """A step as stored. `updated` is the time of its newest commit."""

    name: str
    fingerprint: str
    definition: Mapping[str, Any]
    begun: Positions
    reached: Positions
    frontier: int | None
    updated: int


def in_memory(patience: float) -> apsw.Connection:
    """An empty connection, to attach databases to."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    return connect(":memory:", patience, flags=flags)


def read_only(path: Path) -> str:
    """The URI with which SQLite opens a file read-only.

    In a folder where it may not write, SQLite cannot create its shared memory. Without a WAL
    nothing changes the file, and SQLite can read it as immutable.
    """
    still = not path.with_name(f"{path.name}-wal").exists() and not os.access(
        path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids
    )
    return path.resolve().as_uri() + ("?immutable=1" if still else "?mode=ro")


@contextlib.contextmanager
def looking(**databases: Path) -> Iterator[apsw.Connection]:
    """A read-only connection, with these databases attached under their names."""
    (first, *_) = databases.values()
    link = Link("The database", lambda: in_memory(PATIENCE), patience=PATIENCE)
    with contextlib.closing(link), failures(first, PATIENCE).translated(), link as db:
        for name, path in databases.items():
            db.execute(f"ATTACH ? AS {name}", (read_only(path),))
        yield db


@contextlib.contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A snapshot of a database, on a read-only connection."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    link = Link(
        f"The database {path}",
        lambda: connect(read_only(path), PATIENCE, flags=flags),
        patience=PATIENCE,
    )
    with contextlib.closing(link), link.snapshot() as db:
        yield db


def foreign(path: Path) -> str | None:
    """The reason if a file is no database of views; None if it is, "" if it is being created."""
    try:
        with reading(path) as db:
            made_by = db.execute("PRAGMA application_id").get
            version = int(db.execute("PRAGMA user_version").get)
            if made_by == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").get:
                return ""
    except apsw.Error as error:
        return str(error)
    if made_by != APPLICATION:
        return "it is not a database of views"
    return None if version <= FORMAT else f"a newer headrace made it, in format {version}"


def steps_in(path: Path) -> dict[str, StoredStep]:
    """The steps that have results in a database, by name; none if it does not exist."""
    if not path.exists():
        return {}
    with looking(live=path) as db:
        found = (
            db.execute("PRAGMA live.application_id").get,
            db.execute("PRAGMA live.user_version").get,
        )
        if found == (0, 0) and not db.execute("SELECT count(*) FROM live.sqlite_schema").get:
            return {}  # it is being created
        check_format(path, found)
        return stored_steps(db, "live")


def stored_steps(db: apsw.Connection, schema: str) -> dict[str, StoredStep]:
    """The steps that have results in an attached database."""
    rows = db.execute(
        "SELECT name, fingerprint, definition, begun, reached, frontier, updated "
        f"FROM {quoted(schema)}._headrace_step"
    )
    return {
        str(name): StoredStep(
            str(name),
            str(fingerprint),
            json.loads(str(definition)),
            positions_from_json(str(begun)),
            positions_from_json(str(reached)),
            None if frontier is None else int(str(frontier)),
            int(str(updated)),
        )
        for name, fingerprint, definition, begun, reached, frontier, updated in rows
    }


def sent_by(path: Path, topic: str) -> tuple[str, int] | None:
    """The producer of an application's output and the sequence number of the last that is kept for
    a topic; None if there is none, since all was sent."""
    with looking(live=path) as db:
        last = db.execute(
            "SELECT max(sequence) FROM live._headrace_outbox WHERE topic = ?", (topic,)
        ).get
        if last is None:
            return None
        ((app, generation),) = db.execute("SELECT name, generation FROM live._headrace_app")
        return f"{app}.{generation}", int(last)


def switched_in(path: Path) -> set[str]:
    """The steps whose results are switched, and whose checkpoints are not yet."""
    if not path.exists():
        return set()
    with looking(live=path) as db:
        there = db.execute("SELECT 1 FROM live.sqlite_schema WHERE name = ?", (SWITCHES,)).get
        return (
            {str(name) for (name,) in db.execute(f"SELECT step FROM live.{SWITCHES}")}
            if there
            else set()
        )


def rows_in(path: Path, view: str, key: Sequence[str]) -> list[dict[str, Any]]:
    """Every row of a view in a database, by its key."""
    order = ", ".join(map(quoted, key))
    with looking(live=path) as db:
        cursor = db.cursor()
        cursor.row_trace = lambda cursor, row: dict(
            zip((name for name, *_ in cursor.get_description()), row, strict=True)
        )
        return list(cursor.execute(f"SELECT * FROM live.{quoted(view)} ORDER BY {order}"))
