"""The effects and the limits of destroying a key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

BEYOND = (
    "Backups and copies of the key store: destroy them, or forget the subject again in each "
    "that is restored.",
    "Text in clear: views, tables, files and stores that were filled by whoever had the keys, "
    "messages that were sent, logs of applications, and screens.",
    "Fields that were not declared personal when they were written, ids of aggregates and "
    "commands, and tags. Who has the key store can test a guess against a hidden tag.",
    "Memory: a process that runs drops the key at its next use of the key store, but Python does "
    "not erase memory, and the system may have written it to swap.",
    "Blocks that the disk keeps: snapshots of the file system, and cells that an SSD has not yet "
    "erased.",
)
"""The places that `forget` cannot reach."""


@dataclass(frozen=True)
class Forgotten:
    """The end of a subject's key: when it was destroyed, and what that does not reach."""

    subject: str
    at: datetime
    beyond: tuple[str, ...] = BEYOND
