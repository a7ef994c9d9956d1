"""A progress bar on stderr, if it is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from headrace.cli.output import err


@contextlib.contextmanager
def bytes_shown() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show a progress bar in bytes for each task that is started."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns, console=err(), transient=True, disable=not sys.stderr.isatty()
    ) as shown:

        def begin(what: str) -> Callable[[int, int], None]:
            task = shown.add_task(what)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield begin
