"""Charts of a view: sums per window, and a ranking. Numbers are text beside each bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Element

from headrace.studio.live.rows import Window

_WIDTH, _HEIGHT = 760, 150
_LEFT, _TOP, _BOTTOM = 8, 22, 22


@dataclass(frozen=True)
class Bar:
    """One line of a ranking."""

    label: str
    value: float
    note: str = ""


def number(value: float) -> str:
    """A number for people: whole ones whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def per_window(windows: Sequence[Window], column: str) -> Element:
    """Bars of the sums of a column, one for each window, the newest on the right."""
    most = max((window.total for window in windows), default=0) or 1
    wide = (_WIDTH - 2 * _LEFT) / max(len(windows), 12)
    high = _HEIGHT - _TOP - _BOTTOM
    bars = []
    for place, window in enumerate(windows):
        height = max(1.0, high * max(0.0, window.total) / most)
        left = _WIDTH - _LEFT - (len(windows) - place) * wide
        kind = "now" if place == len(windows) - 1 else ""
        bars.append(
            h.rect(
                class_=f"column {kind}".strip(),
                x=f"{left + 1:.1f}",
                y=f"{_HEIGHT - _BOTTOM - height:.1f}",
                width=f"{max(1.0, wide - 2):.1f}",
                height=f"{height:.1f}",
                rx="2",
            )[h.title[f"{window.start}: {number(window.total)}"]]
        )
    last = windows[-1] if windows else None
    text = f"{column} per window, {len(windows)} windows"
    if last is not None:
        text += f", {number(last.total)} in the newest, {number(most)} at most"
    return h.figure(".panel")[
        h.figcaption[f"{column} per window"],
        h.div(".scroll", tabindex="0", role="group", aria_label=text)[
            h.svg(".drawing", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=text)[
                bars,
                h.line(
                    ".tick",
                    x1=str(_LEFT),
                    x2=str(_WIDTH - _LEFT),
                    y1=str(_HEIGHT - _BOTTOM),
                    y2=str(_HEIGHT - _BOTTOM),
                ),
                h.text(".tick-label", x=str(_LEFT), y="12")[f"at most {number(most)}"],
                last is not None
                and h.text(
                    ".tick-label", {"text-anchor": "end"}, x=str(_WIDTH - _LEFT), y=str(_HEIGHT - 6)
                )[last.start],
                len(windows) > 6
                and h.text(
                    ".tick-label",
                    x=f"{_WIDTH - _LEFT - len(windows) * wide:.1f}",
                    y=str(_HEIGHT - 6),
                )[windows[0].start],
            ]
        ],
    ]


def ranking(bars: Sequence[Bar], places: int, label: str) -> Element:
    """A ranking with a fixed number of places, so that nothing moves as it fills."""
    most = max((bar.value for bar in bars), default=0) or 1
    lines = [
        h.li[
            h.span(".rank-label", title=bar.label)[bar.label],
            h.svg(".rank-bar", aria_hidden="true")[
                h.rect(width=f"{100 * max(0.0, bar.value) / most:.2f}%", height="100%", rx="3")
            ],
            h.span(".rank-value", data_rank=str(place))[number(bar.value)],
            h.span(".rank-note")[bar.note],
        ]
        for place, bar in enumerate(bars[:places], 1)
    ]
    empty = [h.li(".nobody", aria_hidden="true") for _ in range(places - len(lines))]
    return h.ol(".ranking", aria_label=label)[lines, empty]
