"""A frame of a simulation: its numbers, and panels that one renderer draws. Plain data.

A `kind` says what something is, and the style sheet how it looks: `good`, `warn`, `late`, `bad`,
`muted`, `now`, or one of the categories `a` to `f`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """A number of a frame, as text in the page and as a value in the API."""

    name: str
    value: int | float | str
    unit: str = ""
    kind: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        shown = (
            f"{self.value:,.4g}"
            if isinstance(self.value, float)
            else f"{self.value:,}"
            if (isinstance(self.value, int))
            else self.value
        )
        return f"{shown} {self.unit}".strip()


@dataclass(frozen=True)
class Axis:
    """An axis of a plot. Values are plain numbers, such as seconds."""

    label: str
    start: float
    end: float


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    kind: str = ""
    hint: str = ""
    """Its description, for a pointer and a screen reader."""
    label: str = ""


@dataclass(frozen=True)
class Line:
    points: tuple[tuple[float, float], ...]
    kind: str = ""
    label: str = ""


@dataclass(frozen=True)
class Band:
    """A rectangle: from `start` to `end` on the x axis, from `low` to `high` on the other."""

    start: float
    end: float
    kind: str = ""
    label: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """Points, lines and bands between two axes."""

    title: str
    description: str
    x: Axis
    y: Axis
    bands: tuple[Band, ...] = ()
    lines: tuple[Line, ...] = ()
    points: tuple[Point, ...] = ()
    height: int = 300


@dataclass(frozen=True)
class Cell:
    text: str
    kind: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Pointer:
    """A mark below a cell, such as a consumer's position."""

    at: int
    label: str
    kind: str = ""


@dataclass(frozen=True)
class Lane:
    """A row of cells, such as a partition: the first has the offset `first`."""

    label: str
    cells: tuple[Cell, ...]
    pointers: tuple[Pointer, ...] = ()
    first: int = 0
    note: str = ""


@dataclass(frozen=True)
class Lanes:
    """Rows of cells below each other. Pointers name offsets."""

    title: str
    description: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Box:
    """A box of a flow, at a column and a row."""

    name: str
    title: str
    column: float
    row: float
    lines: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes, and what travels along it."""

    start: str
    end: str
    label: str = ""
    kind: str = ""
    tokens: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Flow:
    """Boxes and arrows."""

    title: str
    description: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    wide: bool = False
    """True if arrows have labels that need more room between the boxes."""


@dataclass(frozen=True)
class Grid:
    """A table. `kinds` are those of its rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...] = ()
    empty: str = "Nothing yet."


Panel = Plot | Lanes | Flow | Grid


@dataclass(frozen=True)
class Frame:
    """The contents of a simulation at a step."""

    step: int
    steps: int
    caption: str
    """The event of this step, in a sentence."""
    numbers: tuple[Number, ...]
    panels: tuple[Panel, ...]

    def number(self, name: str) -> int | float | str:
        """The value of a number."""
        return next(number.value for number in self.numbers if number.name == name)

    def __iter__(self) -> Iterator[Panel]:
        return iter(self.panels)

    def plain(self) -> dict[str, Any]:
        """The frame as JSON has it. Each panel says what it is."""
        return {
            "step": self.step,
            "steps": self.steps,
            "caption": self.caption,
            "numbers": {number.name: number.value for number in self.numbers},
            "panels": [{"panel": type(panel).__name__.lower(), **asdict(panel)} for panel in self],
        }
