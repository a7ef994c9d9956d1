"""Bytes that are no row."""

from __future__ import annotations


class Garbage(Exception):
    """The value at `index` is no row of the schema, for this reason."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason
