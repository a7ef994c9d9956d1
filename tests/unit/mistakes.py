"""A table of common mistakes: the line of code, and its error.

`mistakes.txt` has it as text: a line of code, and the error below it. Each line runs in `app.py`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import headrace as hr
from headrace.plan.steps import steps_of

DECLARED = """\
app = hr.App("shop")
columns = "page string, user bigint, amount double, at timestamp"
clicks = app.topic("clicks", schema=columns, event_time="at", key="page")
other = app.topic("other", schema=columns, event_time="at", key="page")
people = "id bigint, name string, at timestamp"
users = hr.table(app.topic("users", schema=people, event_time="at", key="id"), key="id")
minute = hr.tumbling(timedelta(minutes=1))
late = hr.Lateness(delay=timedelta(0), grace=timedelta(0))
hits = hr.aggregate(clicks, by="page", window=minute, lateness=late, hits=hr.count())
app.view("hits", hits)
"""
"""The declarations before each mistake."""


class Mistake(NamedTuple):
    """A line of code, the class of its error, and the error's text."""

    code: str
    error: str
    text: str


def mistakes() -> list[Mistake]:
    """All mistakes of the table."""
    text = Path(__file__).with_suffix(".txt").read_text()
    parts = [part.split("\n    ", 1) for part in text.strip().split("\n\n")]
    return [Mistake(code, *error.split(": ", 1)) for code, error in parts]


def make(code: str) -> None:
    """Run a line of code after the declarations, as the first line of app.py."""
    known: dict[str, Any] = {"hr": hr, "timedelta": timedelta, "steps_of": steps_of}
    exec(compile(DECLARED, "declared.py", "exec"), known)  # noqa: S102 - our own table
    exec(compile(code, "app.py", "exec"), known)  # noqa: S102
