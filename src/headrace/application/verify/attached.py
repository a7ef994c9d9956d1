"""Attached databases: the one that a topic of changes comes from, and a capture that heals it."""

from __future__ import annotations

import contextlib
from functools import partial

from headrace.application.verify.sources import Captured
from headrace.cdc.attachment import Attachment, attachments, captures_folder
from headrace.cdc.opening import database_of, open_source
from headrace.cdc.requests import ask_for_snapshot
from headrace.cdc.state import Snapshot, read_state
from headrace.cdc.supervised import SupervisedRun
from headrace.clock import SECOND, Clock
from headrace.errors import AlreadyRunning, SourceError, UnknownTopic
from headrace.log import Log
from headrace.store.lock import only_one

_LOOK = SECOND // 5
_PATIENCE = 30 * SECOND
"""The time that the snapshot of a running capture may stand still."""


def captured_by(log: Log, topic: str) -> Captured | None:
    """The attached database whose changes are in a topic; None if none is attached for it."""
    for attachment in attachments(log):
        with contextlib.suppress(UnknownTopic):
            tables = read_state(log, attachment.prefix).tables.values()
            if any(table.topic == topic for table in tables):
                return Captured(
                    attachment.prefix,
                    database_of(attachment).name,
                    partial(open_source, attachment),
                    partial(capture_again, log, attachment),
                )
    return None


def capture_again(log: Log, attachment: Attachment, table: str, clock: Clock) -> None:
    """Let a snapshot of a table write the rows that differ, and wait until it is complete."""
    before = _snapshot(log, attachment, table)
    ask_for_snapshot(log, attachment.prefix, table)
    path = captures_folder(log) / f"{attachment.prefix}.lock"
    try:
        with only_one(path, "It is captured", ""):
            SupervisedRun(log, attachment, until_caught_up=True, clock=clock).run()
            return
    except AlreadyRunning:
        pass
    last, until = before, clock.monotonic() + _PATIENCE
    while True:
        now = _snapshot(log, attachment, table)
        begun = now is not None and (before is None or now.generation > before.generation)
        if begun and now is not None and now.complete:
            return
        if now != last:
            last, until = now, clock.monotonic() + _PATIENCE
        if clock.monotonic() >= until:
            raise SourceError(
                f"The capture {attachment.prefix!r} runs, and does not take the request for a "
                f"snapshot of {table}",
                hint=f"headrace cdc status {attachment.prefix} shows what it waits for",
            )
        clock.sleep(_LOOK)


def _snapshot(log: Log, attachment: Attachment, table: str) -> Snapshot | None:
    found = read_state(log, attachment.prefix).tables.get(table)
    return None if found is None else found.snapshot
