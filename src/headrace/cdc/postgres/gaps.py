"""Changes after a position that a server no longer has: each reason by its name."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headrace.cdc.contract import Gap
from headrace.cdc.postgres.position import Position, lsn_text, read_lsn
from headrace.cdc.postgres.slot import Slot


class Server(NamedTuple):
    """A server as it introduces itself, and the end of its log."""

    system: str
    timeline: int
    head: int


def identify(connection: Any) -> Server:
    """The server behind a connection for replication."""
    with connection.cursor() as cursor:
        cursor.execute("IDENTIFY_SYSTEM")
        system, timeline, head, _ = cursor.fetchone()
    return Server(str(system), int(timeline), read_lsn(head))


def find_gap(
    connection: Any,
    server: Server,
    start: Position,
    name: str,
    found: Slot | None,
    made_anew: str | None,
) -> Gap | None:
    """The gap after a position, with the slot of that name as it was found.

    `made_anew` says why the slot was made again, if it was.
    """
    confirmed = None if found is None else found.confirmed
    first = None if confirmed is None else Position(confirmed, server.system, server.timeline)
    reason: str | None = None
    if start.system != server.system:
        reason = f"this is another server: its system is {server.system}, and was {start.system}"
    elif found is None or confirmed is None:
        reason = f"the slot {name} was dropped"
    elif found.lost:
        reason = f"the server has removed WAL that the slot {name} was to keep"
    elif (end := _end_of(connection, server, start.timeline)) is not None and start.lsn > end:
        reason = (
            f"the server was promoted at {lsn_text(end)} (timeline {server.timeline}), "
            "before what was captured last"
        )
    elif start.lsn > server.head:
        reason = f"the log of the server ends at {lsn_text(server.head)}, as that of a backup would"
    elif confirmed > start.lsn:
        reason = made_anew or f"the slot {name} was moved ahead or made anew"
    if reason is None:
        return None
    return Gap(str(start), None if first is None else str(first), reason)


def _end_of(connection: Any, server: Server, timeline: int) -> int | None:
    """The place at which a timeline ended; None if it is the server's own."""
    if timeline == server.timeline:
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"TIMELINE_HISTORY {server.timeline}")
        content = cursor.fetchone()[1]
    text = content if isinstance(content, str) else bytes(content).decode()
    found = re.search(rf"^{timeline}\t([0-9A-F]+/[0-9A-F]+)", text, re.MULTILINE)
    return 0 if found is None else read_lsn(found[1])
