"""A canvas with a time axis, dots, bars, lines and words, written as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK, FAINT, PAPER = "#22313f", "#d5dde5", "#ffffff"
BLUE, GREEN, ORANGE, RED, GREY = "#2f6fb3", "#2e8b67", "#d98a1f", "#c0433d", "#8796a5"

_FONT = "font-family='Helvetica, Arial, sans-serif'"


class Sheet:
    """A picture of a size in pixels, with a margin."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        colour: str = INK,
        anchor: str = "start",
        bold: bool = False,
        code: bool = False,
    ) -> None:
        look = " font-weight='600'" if bold else ""
        if code:
            look += " font-family='Menlo, Consolas, monospace' xml:space='preserve'"
        self._parts.append(
            f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{colour}' "
            f"text-anchor='{anchor}'{look}>{escape(words)}</text>"
        )

    def dot(self, x: float, y: float, colour: str = INK, *, radius: float = 5) -> None:
        self._parts.append(f"<circle cx='{x:g}' cy='{y:g}' r='{radius:g}' fill='{colour}'/>")

    def bar(
        self, x: float, y: float, width: float, height: float, colour: str, words: str = ""
    ) -> None:
        self._parts.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='4' "
            f"fill='{colour}' fill-opacity='0.16' stroke='{colour}' stroke-width='1.5'/>"
        )
        if words:
            self.text(x + width / 2, y + height / 2 + 4.5, words, anchor="middle", colour=colour)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = INK,
        *,
        thick: float = 1.5,
        dashed: bool = False,
    ) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self._parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' "
            f"stroke-width='{thick:g}' stroke-linejoin='round'{dash}/>"
        )

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """A legend: a dot for each colour and its meaning, side by side."""
        for colour, words in entries:
            self.dot(x, y - 4, colour)
            self.text(x + 10, y, words, size=12)
            x += 28 + 6.6 * len(words)

    def svg(self) -> str:
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
            f"width='{self.width}' height='{self.height}' role='img' {_FONT}>\n"
            f"<title>{escape(self._title)}</title>\n"
            f"<rect width='100%' height='100%' rx='8' fill='{PAPER}' stroke='{FAINT}'/>\n"
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )
