"""The error for bytes that cannot be decoded to a row."""

from __future__ import annotations


class Garbage(Exception):
    """The value at `index` is not a row of the schema; `reason` says why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason
