"""A log as an SQLite table with one row per record."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

_SCHEMA = """
    CREATE TABLE log (partition INTEGER, offset INTEGER, key BLOB, value BLOB,
        PRIMARY KEY (partition, offset)) WITHOUT ROWID
"""


def insert(path: Path, records: Sequence[tuple[bytes, bytes]], partitions: int) -> None:
    """Insert records one by one, in synced transactions of 1,000."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(_SCHEMA)
    ends = [0] * partitions
    for start in range(0, len(records), 1_000):
        db.execute("BEGIN IMMEDIATE")
        for key, value in records[start : start + 1_000]:
            partition = zlib.crc32(key) % partitions
            offset = ends[partition]
            db.execute("INSERT INTO log VALUES (?, ?, ?, ?)", (partition, offset, key, value))
            ends[partition] = offset + 1
        db.execute("COMMIT")
    db.close()
