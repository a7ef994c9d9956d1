"""Positions in a binlog."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headrace.errors import InvalidPosition

_TEXT = re.compile(r"(?P<file>\S+):(?P<offset>\d+) server=(?P<server>\d+)(?: gtid=(?P<gtid>\S+))?")
_GTID = re.compile(r"(?P<domain>\d+)-(?P<server>\d+)-(?P<sequence>\d+)")


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two transactions of a binlog.

    File and offset are exact on one server. The GTIDs, the last one of each replication domain,
    name the same place on every server that has the same transactions.
    """

    file: str
    offset: int
    server: int
    gtid: str = ""

    def __str__(self) -> str:
        gtid = f" gtid={self.gtid}" if self.gtid else ""
        return f"{self.file}:{self.offset} server={self.server}{gtid}"

    @classmethod
    def parse(cls, text: str) -> Position:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidPosition(
                f"{text!r} is not a position in a binlog",
                hint="It looks like: binlog.000003:4567 server=1 gtid=0-1-100",
            )
        offset, server = int(found["offset"]), int(found["server"])
        return cls(found["file"], offset, server, found["gtid"] or "")

    def passed(self, mark: Position) -> bool:
        """True if this is at or after a mark. Offsets of two servers say nothing."""
        if self.server != mark.server:
            return False
        return (file_number(self.file), self.offset) >= (file_number(mark.file), mark.offset)

    def after(self, gtid: str) -> Position:
        """The same place with another transaction in its GTIDs."""
        return replace(self, gtid=sort_gtids(f"{self.gtid},{gtid}"))


def file_number(name: str) -> int:
    """The number of a binlog file, which grows with each new one."""
    return int(name.rpartition(".")[2])


def sort_gtids(text: str) -> str:
    """GTIDs in the order of their domains, the last one of each."""
    found = {int(match["domain"]): match[0] for match in _GTID.finditer(text)}
    return ",".join(found[domain] for domain in sorted(found))
