"""Positions in the log: an offset, a time, a commit, earliest or latest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from headrace.clock import to_datetime, to_micros
from headrace.errors import InvalidPosition


@dataclass(frozen=True)
class Earliest:
    """Before the first record that retention has kept."""


@dataclass(frozen=True)
class Latest:
    """After the current last record."""


@dataclass(frozen=True)
class Offset:
    """Before the record with this offset."""

    offset: int


@dataclass(frozen=True)
class Time:
    """Before the first record appended at this time or later."""

    micros: int

    @classmethod
    def at(cls, moment: datetime) -> Time:
        """The position of a moment with a time zone."""
        return cls(to_micros(moment))

    def __str__(self) -> str:
        return to_datetime(self.micros).isoformat()


@dataclass(frozen=True)
class Commit:
    """After this commit and before the next.

    So reading from commit 10 to commit 20 gives the commits 11 to 20, and a reader can continue
    from the number of the last commit it has read.
    """

    number: int


Position = Earliest | Latest | Offset | Time | Commit

EARLIEST = Earliest()
LATEST = Latest()


def parse_position(text: str) -> Position:
    """Parse a position from text.

    >>> parse_position("earliest"), parse_position("42"), parse_position("commit:7")
    (Earliest(), Offset(offset=42), Commit(number=7))
    >>> str(parse_position("2026-01-31T12:00:00Z"))
    '2026-01-31T12:00:00+00:00'
    """
    word = text.strip()
    if word == "earliest":
        return EARLIEST
    if word == "latest":
        return LATEST
    if re.fullmatch(r"\d{1,18}", word):
        return Offset(int(word))
    if found := re.fullmatch(r"commit:(\d{1,18})", word):
        return Commit(int(found[1]))
    try:
        return Time.at(datetime.fromisoformat(word))
    except ValueError:
        raise InvalidPosition(
            f"{text!r} is not a position",
            hint="Use earliest, latest, an offset (42), a time (2026-01-31T12:00:00Z) "
            "or a commit (commit:7)",
        ) from None
