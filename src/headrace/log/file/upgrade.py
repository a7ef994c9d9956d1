"""Upgrade a log of an older headrace, in one transaction of its catalog."""

from __future__ import annotations

import apsw

OLDEST = 2
"""The oldest format that can be upgraded; earlier ones were never released."""

_STEPS: dict[int, str] = {
    # Format 2 to 3.
    2: """
        ALTER TABLE head ADD COLUMN synced INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE rollback (epoch INTEGER PRIMARY KEY, first INTEGER NOT NULL);
        ALTER TABLE topic ADD COLUMN uid INTEGER NOT NULL DEFAULT 0;
        UPDATE topic SET uid = random() & 9223372036854775807;
        ALTER TABLE member ADD COLUMN boot TEXT NOT NULL DEFAULT '';
        ALTER TABLE member ADD COLUMN beat INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE commits ADD COLUMN clock INTEGER;
    """,
}


def upgrade(db: apsw.Connection, version: int) -> None:
    """Upgrade the catalog from format `version` to the current one."""
    for step in range(version, OLDEST + len(_STEPS)):
        db.execute(_STEPS[step])
