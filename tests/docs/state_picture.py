"""The picture of the state of joins and Python functions in a long run, from `bench state`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.docs.svg import BLUE, FAINT, GREEN, GREY, Sheet

FOUND = Path(__file__).parents[2] / "docs" / "pictures" / "state.json"
LEFT, WIDTH, HEIGHT = 130, 540, 74


def state() -> Sheet:
    """Rows of state and memory after each batch, for each operator."""
    courses: list[dict[str, Any]] = json.loads(FOUND.read_text())["courses"]
    sheet = Sheet(720, 60 + 110 * len(courses), "What joins and state hold in a long run")
    sheet.legend(LEFT, 26, [(BLUE, "rows of state"), (GREEN, "memory")])
    for number, course in enumerate(courses):
        bottom = 60 + 110 * number + HEIGHT
        sheet.text(16, bottom - HEIGHT + 12, course["name"], bold=True)
        sheet.text(16, bottom - HEIGHT + 30, f"{course['events']:,}", size=11, colour=GREY)
        sheet.text(16, bottom - HEIGHT + 44, "events", size=11, colour=GREY)
        sheet.line([(LEFT, bottom), (LEFT + WIDTH, bottom)], FAINT, thick=1)
        for held, colour, unit, up in (
            (course["rows"], BLUE, "rows", 0),
            (course["memory"], GREEN, "MB", 14),
        ):
            _curve(sheet, held, bottom, colour)
            words = f"most: {max(held):,} {unit}"
            x, y = LEFT + WIDTH, bottom + 14 + up
            sheet.text(x, y, words, size=11, colour=colour, anchor="end")
    return sheet


def _curve(sheet: Sheet, held: Sequence[int], bottom: float, colour: str) -> None:
    """A line of the values after each batch, from 0 at the bottom to the maximum at the top."""
    most, step = max(held), WIDTH / len(held)
    points = [
        (round(LEFT + step * (n + 1), 1), round(bottom - HEIGHT * value / most, 1))
        for n, value in enumerate(held)
    ]
    sheet.line(points, colour, thick=2)
