"""Output: tables and numbers for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.clock import SECOND, to_datetime

_PIPE_WIDTH = 1000
"""Width without a terminal: no line is cut before `grep` sees it."""


def out() -> Console:
    """The console of standard output."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def err() -> Console:
    """The console of standard error."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH, highlight=False)


def show(*things: Any) -> None:
    """Print tables and text on standard output. In a pipe, strip trailing blanks."""
    console = out()
    if console.is_terminal:
        for thing in things:
            console.print(thing)
        return
    with console.capture() as captured:
        for thing in things:
            console.print(thing)
    for line in captured.get().splitlines():
        print(line.rstrip())
    sys.stdout.flush()  # so that later messages on stderr come later


def show_json(value: Any) -> None:
    """Print one JSON object on a line of its own."""
    print(json.dumps(value, ensure_ascii=False))


@contextlib.contextmanager
def bytes_shown() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show a progress bar in bytes on stderr for each task that is started, if it is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns, console=err(), transient=True, disable=not sys.stderr.isatty()
    ) as shown:

        def begin(what: str) -> Callable[[int, int], None]:
            task = shown.add_task(what)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield begin


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table. Columns whose names start with `>` are right-aligned."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for name in columns:
        right = name.startswith(">")
        made.add_column(
            name.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return made


def facts() -> Table:
    """An empty table of names and their values, without a header."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def plain(text: str, style: str = "") -> Text:
    """Text without markup, in which brackets stay brackets."""
    return Text(text, style)


def moment(micros: int | None) -> str | None:
    """A time in ISO 8601, in UTC, with as many digits as it needs."""
    if micros is None:
        return None
    digits = "seconds" if micros % SECOND == 0 else "milliseconds"
    digits = digits if micros % 1000 == 0 else "microseconds"
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec=digits) + "Z"
