"""Upgrade a log that an older headrace made, in one transaction of its catalog."""

from __future__ import annotations

import apsw

OLDEST = 2
"""The oldest format that can be upgraded; none before it was released."""

_STEPS: dict[int, str] = {
    # Format 2 to 3.
    2: """
    """,
}


def upgrade(db: apsw.Connection, version: int) -> None:
    """Bring the catalog from `version` to the present format, table by table."""
    for step in range(version, OLDEST + len(_STEPS)):
        db.execute(_STEPS[step])
