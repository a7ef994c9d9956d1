"""The stage that each kind of source gives to the suite: a database that tests can change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from headrace.cdc import Limits, Progress, run
from headrace.cdc.capture import CrashPoint
from headrace.cdc.contract import Source
from headrace.clock import Clock
from headrace.log import Log, open_log

Row = dict[str, Any]


class Stage(ABC):
    """A database with a capture of it. A kind of source adds its own to `STAGES`."""

    name: ClassVar[str]
    schema: ClassVar[str]
    """The schema of its tables."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Fixtures that it is made with, such as a database on a server."""
    truncates: ClassVar[bool] = True
    """True if it has TRUNCATE."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: Log = open_log(f"file:{folder / 'log'}")

    # The database

    @abstractmethod
    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""

    @abstractmethod
    def transaction(self, *statements: str, rollback: bool = False) -> None:
        """Run statements in one transaction."""

    @abstractmethod
    def rows(self, table: str) -> list[Row]:
        """The rows of a table, by its first column."""

    @abstractmethod
    def source(self, tables: Sequence[str] | None = None, clock: Clock | None = None) -> Source:
        """Open the source, as another process would."""

    @abstractmethod
    def lose_changes(self) -> None:
        """Let the source lose changes that were not read, and change `items` meanwhile."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything."""

    # The capture

    def capture(self, **options: Any) -> Progress:
        """Capture until it has caught up."""
        with self.source(options.pop("tables", None)) as source:
            return run(source, self.log, "shop", until_caught_up=True, **options)

    def topic(self, table: str) -> str:
        return f"shop.{self.schema}.{table}"

    def changes(self, table: str) -> list[Row]:
        """The changes in a topic, in order, without tombstones, each with its `commit`."""
        return [
            {**record.value, "commit": record.commit}
            for batch in self.log.read(self.topic(table))
            for record in batch.records()
            if record.value is not None
        ]

    def current(self, table: str) -> list[Row]:
        """The rows after the last change of each key, whatever was before."""
        last = {change["key"]: change["after"] for change in self.changes(table)}
        rows = [row for row in last.values() if row is not None]
        return sorted(rows, key=lambda row: next(iter(row.values())))

    def drop_column(self, table: str, column: str) -> None:
        """Drop a column of a table."""
        self.execute(f"ALTER TABLE {table} DROP COLUMN {column}")

    def recreate(self, table: str, *statements: str) -> None:
        """Drop a table, and create it in another way."""
        self.execute(f"DROP TABLE {table}", *statements)

    def folded(self, table: str) -> list[Row]:
        """The table as its topic shows it. Checks tombstones and the `before` of each change."""
        found: dict[str, Row] = {}
        deleted: str | None = None
        for batch in self.log.read(self.topic(table)):
            for record in batch.records():
                if record.value is None:
                    assert record.key == deleted, "a tombstone follows its delete"
                    deleted = None
                    continue
                assert deleted is None, "a delete is followed by its tombstone"
                change = record.value
                if change["op"] in "ud" and record.key in found:
                    assert change["before"] == found[record.key]
                if change["op"] == "d":
                    deleted = record.key
                    found.pop(record.key, None)
                else:
                    found[record.key] = change["after"]
        assert deleted is None
        return sorted(found.values(), key=lambda row: next(iter(row.values())))


SMALL = Limits(changes=10, chunk_rows=3)
"""Limits that a few rows exceed."""


class Crashed(BaseException):
    """A simulated crash, which no handler of ordinary errors catches."""


def crash_at(point: str, nth: int) -> CrashPoint:
    """Crash when a point is reached for the nth time."""
    reached = 0

    def look(name: str) -> None:
        nonlocal reached
        reached += name == point
        if name == point and reached == nth:
            raise Crashed(point)

    return look
