"""Charts of a view: sums per window, and a ranking. Numbers are text beside each bar."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Element

from headrace.studio.live.rows import Window

_EDGES = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Ends of the ranges of a histogram, in milliseconds."""
_SLOTS = 12
"""Windows that a chart has room for, at least."""


@dataclass(frozen=True)
class Bar:
    """One line of a ranking."""

    label: str
    value: float


def number(value: float) -> str:
    """A number for people: whole ones whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def per_window(windows: Sequence[Window], column: str, marked: Window | None = None) -> Element:
    """Bars of the sums of a column, one for each window, the newest on the right."""
    most = max((window.total for window in windows), default=0) or 1
    slots = max(len(windows), _SLOTS)
    bars = []
    for place, window in enumerate(windows):
        height = max(1.0, 100 * max(0.0, window.total) / most)
        bars.append(
            h.rect(
                class_="column now" if window == marked else "column",
                x=f"{slots - len(windows) + place + 0.05:.2f}",
                y=f"{100 - height:.1f}",
                width="0.9",
                height=f"{height:.1f}",
            )[h.title[f"{window.start}: {number(window.total)}"]]
        )
    text = f"{column} per window, {len(windows)} windows"
    if windows:
        text += f", {number(windows[-1].total)} in the newest, {number(most)} at most"
    return h.figure(".panel")[
        h.figcaption[f"{column} per window"],
        h.p(".ends.hint")[
            h.span["at most ", number(most)], h.span[windows[-1].start if windows else "none yet"]
        ],
        h.svg(
            ".columns-chart",
            viewBox=f"0 0 {slots} 100",
            preserveAspectRatio="none",
            role="img",
            aria_label=text,
        )[bars],
    ]


def histogram(values: Sequence[int], label: str, empty: str) -> Element:
    """The number of durations in milliseconds in each of some ranges, which stay the same."""
    edges = (*_EDGES, 1 << 62)
    counts = [
        sum(low <= value < high for value in values)
        for low, high in zip((0, *_EDGES), edges, strict=True)
    ]
    most = max(counts) or 1
    ordered = sorted(values)
    words = empty
    if ordered:
        p50, p95 = (ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 95))
        words = f"half within {p50:,} ms, 95 % within {p95:,} ms, the longest {ordered[-1]:,} ms"
    between = (f"{_span(low)} to {_span(high)}" for low, high in itertools.pairwise(_EDGES))
    names = [f"under {_span(_EDGES[0])}", *between, f"{_span(_EDGES[-1])} or more"]
    return h.figure(".panel.histogram")[
        h.figcaption[label],
        h.p(".hint")[words],
        h.ol(".ranking", aria_label=label)[
            (
                h.li[
                    h.span(".rank-label")[name],
                    h.svg(".rank-bar", aria_hidden="true")[
                        h.rect(width=f"{100 * count / most:.2f}%", height="100%", rx="3")
                    ],
                    h.span(".rank-value")[f"{count:,}"],
                ]
                for name, count in zip(names, counts, strict=True)
            )
        ],
    ]


def _span(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1_000 else f"{milliseconds // 1_000} s"


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
        ]
        for place, bar in enumerate(bars[:places], 1)
    ]
    empty = [h.li(".nobody", aria_hidden="true") for _ in range(places - len(lines))]
    return h.ol(".ranking", aria_label=label)[lines, empty]
