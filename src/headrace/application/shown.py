"""The rows that `hr.show` found: a table in a terminal, HTML in a notebook."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.log.sample import Sample
from headrace.oracle.rows import Row

_WIDTH = 200
"""Width of the text form, which no terminal limits."""


@dataclass(frozen=True, repr=False)
class Shown:
    """Some rows of a step, and the part of the log that they were computed from."""

    columns: tuple[str, ...]
    rows: list[Row]
    total: int
    """The number of rows that the step has over that part of the log."""
    samples: tuple[Sample, ...]
    first: bool
    """True if these are the first rows, else the last come first."""
    spark: str = ""
    """The reason why Spark computed them; empty if plain Python did."""

    @property
    def looked_at(self) -> str:
        """The part of the log, in words."""
        parts = [f"{sample.text} of {sample.topic.name}" for sample in self.samples]
        return ", and ".join(parts)

    @property
    def caption(self) -> str:
        """The number of rows, and the part of the log that they are of."""
        which = "the first" if self.first else "the last"
        shown = f"{which} {len(self.rows):,} of {self.total:,}"
        if len(self.rows) == self.total:
            shown = f"{self.total:,}"
        rows = "row" if self.total == 1 else "rows"
        return f"{shown} {rows}, computed from {self.looked_at}"

    def table(self) -> Table:
        """The rows as a table for rich."""
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in self.columns:
            number = any(_is_number(row[name]) for row in self.rows)
            made.add_column(
                Text(name),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
            )
        for row in self.rows:
            made.add_row(*(_cell(row[name]) for name in self.columns))
        return made

    def __rich__(self) -> Table:
        made = self.table()
        made.caption, made.caption_justify = Text(self.caption), "left"
        return made

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, color_system=None)
        with console.capture() as captured:
            console.print(self.table())
        lines = [line.rstrip() for line in captured.get().splitlines()]
        return "\n".join([*lines, self.caption])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_html(row[name])}</td>" for name in self.columns) + "</tr>"
            for row in self.rows
        )
        caption = html.escape(self.caption)
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p><small>{caption}</small></p>"
        )


def text_of(value: Any) -> str:
    """A value for people. Times are in UTC, and control characters are escaped."""
    if isinstance(value, datetime):
        return value.isoformat(" ").replace("+00:00", "Z")
    text = "null" if value is None else str(value)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> Text:
    return Text(text_of(value), "dim" if value is None else "")


def _html(value: Any) -> str:
    text = html.escape(text_of(value))
    return f"<i>{text}</i>" if value is None else text
