"""The contract of a database whose changes can be captured.

A source knows its own positions, types and limits. It knows nothing of topics and envelopes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from headrace.closing import Closing

Row = tuple[Any, ...]
"""The values of a row, in the order of the table's columns.

What the values are is the source's own affair: `Source.columns` makes Arrow of them. They are text,
numbers, bytes or None, so that a copy of the row can be stored.
"""

Operation = Literal["c", "u", "d", "r", "t"]
"""Debezium's operations: create, update, delete, read by a snapshot, truncate."""


class Unsent(Enum):
    """The value that a source leaves out of a row since it has not changed."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unsent.UNCHANGED


@dataclass(frozen=True)
class Table:
    """A captured table. A column that was added, dropped or retyped makes another value.

    A source uses the same object until the table changes: the capture compares them by identity
    first. What the source needs to convert a column is its Arrow type, or metadata of its field.
    """

    schema: str
    name: str
    columns: pa.Schema
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key_places(self) -> tuple[int, ...]:
        """The places of the key's columns."""
        return tuple(map(self.columns.names.index, self.key))

    def key_of(self, row: Row) -> Row:
        """The key of a row."""
        return tuple(row[place] for place in self.key_places)


class Change(NamedTuple):
    """One change of one row.

    `before` is None where the source does not send it: the capture takes it from its own copy of
    the row, as it does values of `after` that are `UNCHANGED`. A change of the primary key is two
    changes, a delete and right after it a create, whose `UNCHANGED` values are those of the deleted
    row. A truncate has neither row, and an empty key.
    """

    table: Table
    op: Operation
    key: Row
    before: Row | None
    after: Row | None


class SourceTransaction(NamedTuple):
    """A committed transaction of the database, or news of a position without one.

    `position` is where reading goes on after it, as text that only the source understands. `at` is
    the time of its commit, in microseconds since the epoch; None if there are no changes.

    `whole` is False for a part of a transaction that is too large to be held at once; its last part
    has it True. All parts have changes, and the same id. A source gives parts only of what is
    committed. Reading does not go on between parts: `begin` with the position before the
    transaction gives its changes again in the same order, and the capture skips those that it has
    written.
    """

    id: str
    position: str
    at: int | None = None
    changes: Sequence[Change] = ()
    whole: bool = True


class Chunk(ABC):
    """Rows of a table in the order of their key, as of one moment of the source.

    A chunk takes its place in the stream of transactions: it is written when the stream has passed
    `high`, without the rows that transactions it does not see have changed meanwhile.
    """

    rows: Sequence[Row]
    high: str
    """The position that the stream has to pass before the chunk is written."""
    last: Row | None
    """The key of its last row, after which the next chunk begins. None at the end of the table."""
    values: pa.StructArray | None = None
    """The rows as `Source.columns` would make them, if the source has read them so."""

    @abstractmethod
    def sees(self, transaction: SourceTransaction) -> bool:
        """True if the rows show what a transaction did that `read` returns after the chunk."""


@dataclass(frozen=True)
class Gap:
    """Changes that the source no longer has, between two positions."""

    after: str
    before: str | None
    reason: str


@dataclass(frozen=True)
class SourceState:
    """The position of the source, and what it holds for us, for `status` and the studio.

    `lag` counts what the source has after the position: in `unit`, such as bytes or changes.
    `facts` are for people, such as the bytes of WAL that a slot holds back.
    """

    head: str
    lag: int
    unit: str
    facts: dict[str, str] = field(default_factory=dict)


class Source(Closing):
    """A database whose changes can be captured. One thread uses it."""

    kind: str
    """The connector, as Debezium calls it: sqlite, postgresql, mysql."""
    database: str
    """The name of the database, for the envelope."""
    replaces: bool = False
    """True if a create may replace a row of the same key, which was not deleted before."""

    @abstractmethod
    def attach(self) -> None:
        """Set up what capturing needs in the database: triggers, a slot, a publication.

        Doing it again changes nothing. Raises `UserError` with what to do if it cannot: a missing
        right is named with its GRANT, a table without a primary key by its name.
        """

    @abstractmethod
    def detach(self) -> None:
        """Remove every trace from the database."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The captured tables as they are now."""

    @abstractmethod
    def begin(self, position: str | None) -> Gap | None:
        """Start reading after a position, or without one at the first change that is still there.

        Returns the gap, and reads nothing, if the source no longer has all that came after it. To
        heal it, the capture begins again without a position and compares the tables.
        """

    @property
    @abstractmethod
    def position(self) -> str:
        """The position that reading has reached: where it began, or after the last whole one."""

    @abstractmethod
    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        """The next transactions in commit order, as many as are there, up to some megabytes.

        Waits up to so many seconds for the first. A quiet source gives its position from time to
        time, without changes, so that chunks can be placed and the source can be acknowledged.
        """

    @abstractmethod
    def acknowledge(self, position: str) -> None:
        """Say that everything up to a position is durable in the log, so it may be forgotten."""

    @abstractmethod
    def passed(self, position: str, mark: str) -> bool:
        """True if a position is at or after another one."""

    def quiet_since(self, position: str) -> bool:
        """True if nothing that is captured was committed after a position, as far as is known.

        It is asked where positions also move without changes, so that `passed` alone cannot tell.
        """
        return False

    @abstractmethod
    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        """The next rows of a table by key, at most `limit`, as of now.

        They show every transaction that `read` has returned. Where the stream can have a
        transaction before it is visible, as in PostgreSQL, the source waits and reads them again.
        """

    def find(self, table: Table, keys: Sequence[Row]) -> Chunk | None:
        """The rows with these keys as of now, with the `high` of a chunk.

        None if the source cannot look them up: then they are read with all others, in chunks.
        """
        return None

    @abstractmethod
    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        """Rows of these columns as Arrow, a null for each None, each column converted at once.

        The columns are those of a table, or of its key. Raises `SourceError` naming the column if
        a value does not fit.
        """

    @abstractmethod
    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        """The reverse of `columns`, to make the copy of a table again from its topic.

        A value may be written in another way than the source does, if `columns` makes the same of
        it.
        """

    @abstractmethod
    def state(self, position: str | None) -> SourceState:
        """The source's own view of how far a reader at a position is."""
