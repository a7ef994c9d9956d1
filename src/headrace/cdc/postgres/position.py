"""Positions in the write-ahead log: a place, and the server and timeline it is a place of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import SourceError

_TEXT = re.compile(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})@([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class Position:
    """Reading goes on at `lsn`. A failover changes the timeline, a new cluster the system.

    As text it is `0/16B3748@7384561234567890123.1`.
    """

    lsn: int
    system: str
    timeline: int

    @classmethod
    def parse(cls, text: str) -> Position:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise SourceError(
                f"{text!r} is not a position in PostgreSQL",
                hint="Capture each database under a prefix of its own",
            )
        high, low, system, timeline = match.groups()
        return cls(int(high, 16) << 32 | int(low, 16), system, int(timeline))

    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)}@{self.system}.{self.timeline}"


def lsn_text(lsn: int) -> str:
    """A place in the WAL as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """The number of a place in the WAL."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
