"""The user's own line of code, for errors about what was declared there."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Where:
    """A line of source."""

    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}" + (f": {text}" if text else "")


def caller() -> Where:
    """The nearest line on the stack that is not headrace's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno)
