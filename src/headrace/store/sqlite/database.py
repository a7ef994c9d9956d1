"""The database that an application keeps its views in: one SQLite file, `views/APP.db` in the log.

Beside the tables of the views, it holds the position and law of each step, and the outbox. One
transaction covers them all.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import apsw

from headrace.errors import CorruptView, ViewError
from headrace.files import sync_path
from headrace.sqlite import Failures, Link, connect
from headrace.store.sqlite.values import DECIMAL, compare_decimals

APPLICATION = 0x48525657
"""'HRVW': SQLite's application_id of a database of views."""

FORMAT = 1
PREFIX = "_headrace_"

LIVE = "live"
"""The emission of a view of the current state, whose rows are never final."""

_PATIENCE = 30.0
"""Seconds to wait for another process."""

_SCHEMA = """
CREATE TABLE _headrace_app (name TEXT NOT NULL, generation TEXT NOT NULL);

CREATE TABLE _headrace_step (
    name TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    definition TEXT NOT NULL,
    begun TEXT NOT NULL,
    reached TEXT NOT NULL,
    frontier INTEGER,
    law TEXT NOT NULL,
    updated INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE _headrace_view (
    name TEXT PRIMARY KEY,
    step TEXT NOT NULL,
    key TEXT NOT NULL,
    columns TEXT NOT NULL,
    emit TEXT NOT NULL,
    delay INTEGER NOT NULL,
    grace INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE _headrace_law (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    step TEXT NOT NULL,
    reached TEXT NOT NULL,
    law TEXT NOT NULL
);

CREATE TABLE _headrace_outbox (
    sequence INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE _headrace_outbox_end (sequence INTEGER NOT NULL);
"""

LANDINGS = f"{PREFIX}landing"
"""A table of earlier versions, which copied topics of a broker."""

OWN_TABLES = frozenset([*re.findall(r"CREATE TABLE (\w+)", _SCHEMA), LANDINGS])
"""The tables that belong to no step."""


def groups_of(step: str) -> str:
    """The table of a step's open groups of duplicates."""
    return f"{PREFIX}groups_{step}"


def panes_of(step: str) -> str:
    """The table of a step's panes."""
    return f"{PREFIX}panes_{step}"


def rows_of(step: str) -> str:
    """The SQL view of a step's joined rows, as they are stored."""
    return f"{PREFIX}rows_{step}"


def slots_of(step: str) -> str:
    """The table of a step's ranks. Its space keeps it distinct from every name."""
    return f"{PREFIX}slots {step}"


class Database:
    """The one writing connection to an application's views. Steps take turns on it."""

    def __init__(self, path: Path, app: str) -> None:
        self.path = path
        self._failures = failures(path, _PATIENCE)
        self._link = Link(f"The database {path}", self._connect, patience=_PATIENCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        # SQLite does not wait if another process does the same.
        with self._failures.translated():
            self._link.patiently(lambda db: db.execute("PRAGMA journal_mode=WAL"))
        with self.writing() as db:
            self._prepare(db, app)
            self.generation = str(db.execute("SELECT generation FROM _headrace_app").get)

    def _connect(self) -> apsw.Connection:
        db = connect(str(self.path), _PATIENCE)
        db.create_collation(DECIMAL, compare_decimals)
        return db

    def _prepare(self, db: apsw.Connection, app: str) -> None:
        if not db.execute("SELECT count(*) FROM sqlite_schema").get:
            db.execute(_SCHEMA)
            db.execute("INSERT INTO _headrace_app VALUES (?, ?)", (app, uuid.uuid4().hex))
            db.execute("INSERT INTO _headrace_outbox_end VALUES (0)")
            db.execute(f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT}")
            # SQLite syncs the folder of its files, but that folder may be new too.
            sync_path(self.path.parent.parent)
        found = db.execute("PRAGMA application_id").get, db.execute("PRAGMA user_version").get
        check_format(self.path, found)

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction, durable when the block ends, or rolled back."""
        with self._failures.translated(), self._link.transaction(_sync) as db:
            yield db

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The same connection, for reading."""
        with self._failures.translated(), self._link as db:
            yield db

    def close(self) -> None:
        self._link.close()


def check_format(path: Path, found: tuple[int, int]) -> None:
    """Check the application_id and user_version of a database."""
    if found != (APPLICATION, FORMAT):
        raise ViewError(
            f"{path} does not hold views that this headrace knows",
            hint="Move it away; views are computed again from the log",
        )


def _sync(db: apsw.Connection) -> None:
    db.execute("PRAGMA synchronous=FULL")


def failures(path: Path, patience: float) -> Failures:
    """The errors of a database of views."""
    return Failures(
        path,
        str(path),
        patience,
        busy="Close the SQLite client that has a transaction open on it",
        full="Free some space and run again. Nothing of this batch is visible",
        damaged="Remove it and the application's checkpoints; views are computed from the log",
        corrupt=CorruptView,
        other=ViewError,
    )
