"""The README's terminal: a recorded run of the demo, as an animated SVG.

`scripts/terminal` records it, and `scripts/pictures` draws it. CSS shows the lines one after the
other, which GitHub plays in a picture. Readers who turned animations off see all lines at once.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

RECORD = Path(__file__).parents[2] / "docs" / "pictures" / "terminal.txt"
COMMAND = "headrace demo --once"

PAPER, BAR, INK, DIM = "#0f1720", "#1b2733", "#d7e0e8", "#7f909f"
GREEN, BLUE, ORANGE, RED = "#5ac18e", "#6cb0f0", "#e5a24a", "#e8837c"
_LEFT, _TOP, _LINE, _WIDTH = 20, 62, 19, 860
_TYPED, _PAUSE, _STEP = 0.9, 0.3, 0.2
"""Seconds to type the command, before its first line, and between lines."""

_COLOURS = [
    (r"✓", GREEN),
    (r"[\d,]+ counted", GREEN),
    (r"[\d,]+ late", ORANGE),
    (r"[\d,]+ dead", RED),
    (r"^Every page view is accounted for\.", GREEN),
]


class Terminal:
    """A picture of a terminal; it has the `svg` of other pictures."""

    def __init__(self, command: str, lines: list[str]) -> None:
        self._command, self._lines = command, lines

    def svg(self) -> str:
        height = _TOP + _LINE * (len(self._lines) + 1) + 8
        title = f"A terminal: {self._command}, and the account of every page view"
        parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' "
            f"width='{_WIDTH}' height='{height}' role='img'>",
            f"<title>{escape(title)}</title>",
            f"<style>{_style(len(self._command))}</style>",
            f"<rect width='100%' height='100%' rx='9' fill='{PAPER}'/>",
            f"<path d='M0 9a9 9 0 0 1 9-9h{_WIDTH - 18}a9 9 0 0 1 9 9v23H0z' fill='{BAR}'/>",
            *(
                f"<circle cx='{20 + 18 * index}' cy='16' r='5' fill='{colour}'/>"
                for index, colour in enumerate((RED, ORANGE, GREEN))
            ),
            _text(0, f"<tspan fill='{GREEN}'>$</tspan>"),
            f"<g class='typed'>{_text(0, escape('  ' + self._command))}</g>",
        ]
        moment = _TYPED + _PAUSE
        for index, line in enumerate(self._lines, start=1):
            if line:
                shown = _text(index, _coloured(line))
                parts.append(f"<g style='animation-delay:{moment:.2f}s'>{shown}</g>")
            moment += _STEP
        return "\n".join([*parts, "</svg>", ""])


def _style(letters: int) -> str:
    return (
        "text{font:13px Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
        "g{animation:show .01s both}"
        f"g.typed{{animation:type {_TYPED}s steps({letters}) both}}"
        "@keyframes show{from{opacity:0}}"
        "@keyframes type{from{clip-path:inset(0 100% 0 0)}to{clip-path:inset(0 0 0 0)}}"
        "@media(prefers-reduced-motion:reduce){g,g.typed{animation:none}}"
    )


def _text(row: int, inner: str) -> str:
    y = _TOP + _LINE * row
    return f"<text x='{_LEFT}' y='{y}' fill='{INK}' xml:space='preserve'>{inner}</text>"


def _coloured(line: str) -> str:
    marks = "|".join(f"({pattern})" for pattern, _ in _COLOURS)
    shown, place = "", 0
    for found in re.finditer(marks, line):
        colour = _COLOURS[(found.lastindex or 1) - 1][1]
        shown += escape(line[place : found.start()])
        shown += f"<tspan fill='{colour}'>{escape(found[0])}</tspan>"
        place = found.end()
    return shown + escape(line[place:])


def terminal() -> Terminal:
    """The most viewed pages and the recount.

    Progress and times are left out: they depend on the machine.
    """
    recorded = RECORD.read_text().rstrip().splitlines()
    start = recorded.index("most viewed")
    pages = recorded[start : start + 7]
    account = recorded[next(i for i, line in enumerate(recorded) if "recount from" in line) :]
    account[-1] = account[-1].partition(" (")[0]
    return Terminal(COMMAND, [*pages, "", *account])
