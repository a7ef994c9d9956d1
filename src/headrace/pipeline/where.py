"""The user's own line of code, for errors about what was declared there."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Where:
    """A line of source, with a column (from 1) if it matters, and its text if known."""

    file: str
    line: int
    column: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line) if self.text is None else self.text
        text = text.strip()
        place = f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")
        return place + (f": {text}" if text else "")


@dataclass(frozen=True)
class WhereInText(Where):
    """A line and column of SQL that is text in a line of source."""

    inner_line: int = 1
    inner_column: int = 1
    inner_text: str = ""

    def __str__(self) -> str:
        inner = f"Line {self.inner_line}, column {self.inner_column} of the SQL"
        return f"{super().__str__()}\n{inner}: {self.inner_text.strip()}"


_declared: ContextVar[Where | None] = ContextVar("declared", default=None)


@contextlib.contextmanager
def declared_at(where: Where) -> Iterator[None]:
    """Attribute what the block declares to that place, not to a line of Python."""
    before = _declared.set(where)
    try:
        yield
    finally:
        _declared.reset(before)


def in_python() -> bool:
    """True if declarations are attributed to lines of Python."""
    return _declared.get() is None


def caller() -> Where:
    """The nearest line on the stack outside of headrace, or the place from `declared_at`."""
    if (declared := _declared.get()) is not None:
        return declared
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno)
