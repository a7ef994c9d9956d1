"""Running a capture: until it is stopped, or has caught up with the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.cdc.capture import Capture, CrashPoint, Limits, SnapshotMode
from headrace.cdc.contract import Source, SourceState
from headrace.cdc.outbox import Outbox
from headrace.cdc.state import Reached, TableState
from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import HeadraceError, Retryable
from headrace.log import Log

_WAIT = 0.5
_AGAIN = SECOND
_SETTLE = 10 * SECOND


@dataclass(frozen=True)
class Progress:
    """The progress of a capture. `failure` is why it waits and tries again."""

    reached: Reached
    tables: tuple[TableState, ...]
    caught_up: bool
    failure: HeadraceError | None = None


def run(
    source: Source,
    log: Log,
    prefix: str,
    *,
    snapshot: SnapshotMode = "initial",
    heal: bool = False,
    again: Iterable[str] = (),
    partitions: int = 1,
    outbox: Outbox | None = None,
    until_caught_up: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[Progress], None] = lambda progress: None,
    attend: Callable[[Capture], None] = lambda capture: None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    crash_point: CrashPoint = lambda point: None,
) -> Progress:
    """Capture a source under a prefix until `stopped`, or until it has caught up.

    `again` are tables to snapshot again, by their full names. While the source or the log is not
    available it waits and tries again. `tell` is called with the progress after each step, and
    `attend` with the capture before it.
    """
    clock = clock or SystemClock()
    wanted = list(again)
    progress = Progress(Reached(), (), caught_up=False)
    while True:
        try:
            with Capture(
                source,
                log,
                prefix,
                snapshot=snapshot,
                heal=heal,
                partitions=partitions,
                outbox=outbox,
                limits=limits,
                clock=clock,
                crash_point=crash_point,
            ) as capture:
                while wanted:
                    capture.snapshot(wanted[0])
                    del wanted[0]
                head = source.state(capture.position).head
                settled = clock.monotonic()
                while True:
                    ended = stopped()
                    attend(capture)
                    busy = not ended and capture.step(0.0 if until_caught_up else _WAIT)
                    caught_up = not busy and capture.has_passed(head)
                    finished = ended or (until_caught_up and caught_up)
                    if finished or clock.monotonic() - settled >= _SETTLE:
                        capture.settle()
                        settled = clock.monotonic()
                    progress = Progress(
                        capture.reached,
                        tuple(captured.state for captured in capture.tables()),
                        caught_up,
                    )
                    tell(progress)
                    if finished:
                        return progress
        except Retryable as failure:
            progress = Progress(progress.reached, progress.tables, False, failure)
            tell(progress)
            if stopped():
                return progress
            clock.sleep(_AGAIN)


def lag(source: Source, progress: Progress) -> SourceState:
    """The lag of a capture behind its source."""
    return source.state(progress.reached.position)
