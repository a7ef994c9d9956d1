"""The log that a slot holds back, and the time until the disk is full."""

from __future__ import annotations

import shutil
from typing import Final

from headrace.cdc.postgres.catalog import Query
from headrace.cdc.postgres.slot import Slot
from headrace.clock import SECOND, Clock
from headrace.wording import size, span

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Health:
    """Facts about a slot, for people. The rate of the log is that since the last time asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[int, int] | None = None

    def facts(self, slot: Slot | None, end: int, query: Query, host: str) -> dict[str, str]:
        """The bytes of a log with this end that a slot holds back."""
        if slot is None:
            return {"slot status": "not there"}
        facts = {"slot status": slot.status or "unknown"}
        if slot.reader is not None:
            facts["reader"] = f"process {slot.reader}"
        if slot.keeps_from is not None:
            facts["WAL held back"] = size(max(0, end - slot.keeps_from))
        rate = self._rate(end)
        if slot.room is not None:
            facts["room for WAL"] = size(slot.room)
            room: int | None = slot.room
        else:
            room = _disk(query, host)
            if room is not None:
                facts["free disk"] = size(room)
        if room is not None and rate:
            facts["full in"] = span(room / rate)
        return facts

    def _rate(self, end: int) -> float | None:
        """Bytes of log per second."""
        now, before = self._clock.monotonic(), self._last
        self._last = (now, end)
        if before is None or now <= before[0]:
            return None
        return (end - before[1]) * SECOND / (now - before[0])


def _disk(query: Query, host: str) -> int | None:
    """The free bytes of the server's disk, if it is on this machine and may be known."""
    if host not in _LOOPBACK:
        return None
    ((folder,),) = query(
        "SELECT CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') "
        "THEN current_setting('data_directory') END"
    )
    try:
        return None if folder is None else shutil.disk_usage(folder).free
    except OSError:
        return None
