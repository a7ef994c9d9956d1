"""A capture as people run it: with requests from other processes, and its lag."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headrace.cdc.attachment import Attachment
from headrace.cdc.capture import Capture
from headrace.cdc.contract import Source
from headrace.cdc.notes import NOTED_EVERY, CaptureNote, State, write_capture_note
from headrace.cdc.opening import open_source
from headrace.cdc.outbox import Outbox
from headrace.cdc.requests import Requests
from headrace.cdc.running import Progress, run
from headrace.cdc.state import TableState
from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import HeadraceError, UserError
from headrace.log import Log

_LOOK_EVERY = SECOND


@dataclass(frozen=True)
class TableProgress:
    """A captured table, and its snapshot if it has had one."""

    name: str
    topic: str
    snapshot: str | None = None
    complete: bool = True
    read: int = 0
    written: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, state: TableState) -> TableProgress:
        """The progress that the state of a table has."""
        found = state.snapshot
        if found is None:
            return cls(state.name, state.topic)
        numbers = (found.read, found.written, found.deleted)
        return cls(state.name, state.topic, found.kind, found.complete, *numbers)


@dataclass(frozen=True)
class CaptureProgress:
    """The progress of a capture. `trouble` says why it waits for the database or the log."""

    prefix: str
    position: str | None = None
    transactions: int = 0
    changes: int = 0
    at: int | None = None
    lag: int | None = None
    unit: str = ""
    tables: tuple[TableProgress, ...] = ()
    trouble: str | None = None

    @property
    def snapshot_rows(self) -> int:
        """The rows that snapshots have read so far."""
        return sum(table.read for table in self.tables)

    @property
    def snapshotting(self) -> list[str]:
        """The tables whose snapshots are not complete."""
        return [table.name for table in self.tables if not table.complete]


class SupervisedRun:
    """A run of the capture of an attached database. One thread uses it.

    Only one process may run a capture: the caller sees to it.
    """

    def __init__(
        self,
        log: Log,
        attachment: Attachment,
        *,
        stopped: Callable[[], bool] = lambda: False,
        tell: Callable[[CaptureProgress], None] = lambda progress: None,
        until_caught_up: bool = False,
        heal: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._attachment = attachment
        self._stopped = stopped
        self._tell = tell
        self._until_caught_up = until_caught_up
        self._heal = heal
        self._clock = clock or SystemClock()
        self._requests = Requests(log, attachment.prefix)
        self._due = 0
        self._note_due = 0
        self._facts: Mapping[str, str] = {}
        self.progress = CaptureProgress(attachment.prefix)

    def run(self) -> CaptureProgress:
        """Capture until `stopped`, or until all that the database has now is in the log.

        A database that does not answer is tried again, unless the run is to end by itself.
        """
        with open_source(self._attachment) as source:
            self._source: Source = source
            try:
                self._run(source)
                self._measure()
            except HeadraceError as error:
                self.progress = replace(self.progress, trouble=error.message)
                raise
            finally:
                self._note("stopped")
        return self.progress

    def _run(self, source: Source) -> None:
        attachment = self._attachment
        run(
            source,
            self._log,
            attachment.prefix,
            snapshot=attachment.snapshot,
            heal=self._heal,
            outbox=None if attachment.outbox is None else Outbox.parse(attachment.outbox),
            until_caught_up=self._until_caught_up,
            stopped=self._stopped,
            tell=self._hear,
            attend=self._attend,
            clock=self._clock,
        )

    def _attend(self, capture: Capture) -> None:
        """Take requests, and measure the lag, about once a second."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + _LOOK_EVERY
        for request in self._requests.open():
            with contextlib.suppress(UserError):  # the table is no longer captured
                capture.snapshot(request.table)
                capture.settle()
            self._requests.done(request)
        self._measure()

    def _hear(self, progress: Progress) -> None:
        """Pass on how far the capture is."""
        if progress.failure is not None:
            if self._until_caught_up:
                raise progress.failure
            self.progress = replace(self.progress, trouble=progress.failure.message)
            self._note("waiting")
        else:
            reached = progress.reached
            self.progress = replace(
                self.progress,
                position=reached.position,
                transactions=reached.transactions,
                changes=reached.changes,
                at=reached.at,
                tables=tuple(map(TableProgress.of, progress.tables)),
                trouble=None,
            )
        self._tell(self.progress)

    def _measure(self) -> None:
        if self.progress.trouble is None:
            state = self._source.state(self.progress.position)
            self.progress = replace(self.progress, lag=state.lag, unit=state.unit)
            self._facts = state.facts
            now = self._clock.monotonic()
            if now >= self._note_due:
                self._note_due = now + NOTED_EVERY
                self._note("running")

    def _note(self, state: State) -> None:
        """Note the state for others, such as the studio."""
        progress, attachment = self.progress, self._attachment
        note = CaptureNote(
            attachment.prefix,
            attachment.address,
            state,
            self._clock.now(),
            progress.lag,
            progress.unit,
            self._facts,
            progress.trouble,
        )
        with contextlib.suppress(OSError):  # On a full disk the log itself says so, and waits.
            write_capture_note(self._log, note)
