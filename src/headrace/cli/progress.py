"""What moves on stderr while a command works, if somebody is looking."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from headrace.cli.output import count, err, size
from headrace.cli.tally import Tally
from headrace.clock import SECOND, SystemClock


@contextlib.contextmanager
def watching(tally: Tally, file: str, *, quiet: bool) -> Iterator[None]:
    """Show how a tally grows; of a file also how much of it is done."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    total = os.path.getsize(file) if file != "-" and os.path.isfile(file) else 0
    clock = SystemClock()
    started = clock.now()

    def look() -> Table:
        seconds = (clock.now() - started) / SECOND or 1
        line = Table.grid(padding=(0, 2, 0, 0))
        cells = [f"{count(tally.sent)} records", f"{tally.sent / seconds:,.0f} records/s"]
        if tally.skipped:
            cells.append(f"{count(tally.skipped)} bad")
        if total:
            line.add_row(
                *cells,
                ProgressBar(total, tally.bytes, width=20),
                f"{tally.bytes / total:.0%}",
            )
        else:
            line.add_row(*cells, size(tally.bytes))
        return line

    # Drawn by a thread of its own from what the tally says, so the sender has nothing to do.
    with Live(get_renderable=look, console=err(), transient=True, refresh_per_second=8):
        yield


@contextlib.contextmanager
def bytes_shown() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show how many bytes are done of each thing that is begun, one after the other."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns, console=err(), transient=True, disable=not sys.stderr.isatty()
    ) as shown:

        def begin(what: str) -> Callable[[int, int], None]:
            task = shown.add_task(what)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield begin
