"""What is remembered of a landing: how far it is, and what became of the rows it has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import apsw

from headrace.store.sqlite.database import LANDINGS, Database

Offsets = Mapping[int, int]
"""The offset that is read next, by partition."""


@dataclass(frozen=True)
class Landed:
    """How far the landing of a topic is.

    `query` and `batch` say which batch of Spark was the last, and `sequence` under which number the
    embedded log takes the next rows. Both are stored with `offsets`, and so never apart.
    """

    offsets: Offsets
    query: str | None = None
    batch: int = -1
    sequence: int = 0
    rows: int = 0
    dead: int = 0

    def has(self, query: str, batch: int) -> bool:
        """Whether a batch was landed already."""
        return self.query == query and batch <= self.batch


class LandingTable:
    """The landings of one application, in the database of its views."""

    def __init__(self, database: Database) -> None:
        with database.writing() as db:
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {LANDINGS} (topic TEXT PRIMARY KEY, "
                "offsets TEXT NOT NULL, query TEXT, batch INTEGER NOT NULL, "
                "sequence INTEGER NOT NULL, rows INTEGER NOT NULL, dead INTEGER NOT NULL)"
                " WITHOUT ROWID"
            )

    def find(self, db: apsw.Connection, topic: str) -> Landed:
        """How far a topic is; at nothing, if it was never landed."""
        found = list(
            db.execute(
                "SELECT offsets, query, batch, sequence, rows, dead "
                f"FROM {LANDINGS} WHERE topic = ?",
                (topic,),
            )
        )
        if not found:
            return Landed({})
        ((offsets, query, batch, sequence, rows, dead),) = found
        ends = {int(partition): int(end) for partition, end in json.loads(str(offsets)).items()}
        name = None if query is None else str(query)
        return Landed(ends, name, int(batch), int(sequence), int(rows), int(dead))

    def put(self, db: apsw.Connection, topic: str, landed: Landed) -> None:
        """Remember it, in a transaction."""
        db.execute(
            f"INSERT OR REPLACE INTO {LANDINGS} VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                topic, json.dumps({str(p): end for p, end in landed.offsets.items()}),
                landed.query, landed.batch, landed.sequence, landed.rows, landed.dead,
            ),
        )  # fmt: skip
