"""Captures as tables, live lines and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.failures import say
from headrace.cli.output import err, moment, plain, table
from headrace.clock import SECOND, SystemClock
from headrace.wording import count, lag_text, many

if TYPE_CHECKING:
    from headrace.cdc.attachment import Attachment
    from headrace.cdc.supervised import CaptureProgress, TableProgress

_LINE_EVERY = 5 * SECOND


class Watch:
    """Shows a capture while it runs: a live line on a terminal, else a line every few seconds."""

    def __init__(self, attachment: Attachment) -> None:
        self._name = attachment.prefix
        self._clock = SystemClock()
        self._before: tuple[int, int] | None = None
        self._rate = 0.0
        self._due = 0
        self._live: Live | None = None
        self._told: tuple[int, str | None] | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live = Live(console=err(), transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, progress: CaptureProgress) -> None:
        """Show how far the capture is."""
        now = self._clock.monotonic()
        done = progress.changes + progress.snapshot_rows
        if self._before is None or now - self._before[0] >= SECOND:
            if self._before is not None:
                self._rate = max(0, done - self._before[1]) * SECOND / (now - self._before[0])
            self._before = (now, done)
        line = self._line(progress)
        if self._live is not None:
            self._live.update(Text(line))
            return
        news = (done, progress.trouble)
        if news != self._told and (now >= self._due or progress.trouble is not None):
            self._due = now + _LINE_EVERY
            self._told = news
            say(line)

    def _line(self, progress: CaptureProgress) -> str:
        if progress.trouble is not None:
            return f"{self._name}: waiting for the database: {progress.trouble}"
        parts = [f"{self._name}: {many(progress.changes, 'change')}"]
        if progress.snapshotting:
            tables = ", ".join(progress.snapshotting)
            parts.append(f"snapshot of {tables}: {many(progress.snapshot_rows, 'row')}")
        parts.append(f"{self._rate:,.0f}/s")
        if progress.lag is not None:
            parts.append(f"lag {lag_text(progress.lag, progress.unit)}")
        return " · ".join(parts)


def summary(progress: CaptureProgress) -> str:
    """The progress of a capture, in a line."""
    transactions = many(progress.transactions, "transaction")
    line = f"Captured {many(progress.changes, 'change')} in {transactions}"
    if progress.snapshot_rows:
        line += f", after a snapshot of {many(progress.snapshot_rows, 'row')}"
    if progress.snapshotting:
        line += f". Not complete yet: the snapshot of {', '.join(progress.snapshotting)}"
    return line


def table_lines(tables: Iterable[TableProgress]) -> Table:
    """A line per captured table, with its last snapshot."""
    lines = table("table", "topic", "snapshot", ">rows read", ">written", ">deleted")
    for each in tables:
        state = "-" if each.snapshot is None else each.snapshot
        state = state if each.complete else f"{state}, running"
        numbers = (count(each.read), count(each.written), count(each.deleted))
        lines.add_row(plain(each.name, "bold"), plain(each.topic), plain(state), *numbers)
    return lines


def run_json(progress: CaptureProgress) -> dict[str, Any]:
    """The progress of a capture."""
    return {
        "prefix": progress.prefix,
        "position": progress.position,
        "changes": progress.changes,
        "transactions": progress.transactions,
        "last_change": moment(progress.at),
        "lag": progress.lag,
        "unit": progress.unit,
        "tables": [asdict(each) for each in progress.tables],
    }
