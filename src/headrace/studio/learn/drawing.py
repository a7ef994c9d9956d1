"""Draw the panels of a frame as SVG and tables. Colours come from the style sheet, by kind.

Nothing is told by colour alone: points have shapes, cells have text, and each panel has a
description in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import htpy as h
from htpy import Element, Node

from headrace.studio.learn.flows import across, downward
from headrace.studio.learn.frame import (
    Axis,
    Band,
    Flow,
    Frame,
    Grid,
    Lane,
    Lanes,
    Line,
    Panel,
    Plot,
    Point,
)
from headrace.studio.learn.svg import WIDTH, label, num, styled, svg
from headrace.studio.pages import Fact, facts, table

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 40
_CELL, _LANE, _LABEL = 40, 66, 110


def drawn(frame: Frame) -> Element:
    """A frame: its caption, its numbers and its panels."""
    return h.div("#frame", data_step=str(frame.step), data_steps=str(frame.steps))[
        h.p(".caption", role="status")[frame.caption],
        facts(Fact(n.name, n.text, n.kind, n.hint) for n in frame.numbers),
        [panel_of(panel) for panel in frame],
    ]


def panel_of(panel: Panel) -> Element:
    """A panel with its title. A flow that fits a phone is drawn for one too."""
    narrow = downward(panel) if isinstance(panel, Flow) else None
    if narrow is None:
        return h.figure(".panel")[h.figcaption[panel.title], _body(panel)]
    return h.figure(".panel")[
        h.figcaption[panel.title],
        h.div(".on-screen")[_body(panel)],
        h.div(".on-phone")[narrow],
    ]


def _body(panel: Panel) -> Node:
    match panel:
        case Plot():
            return _plot(panel)
        case Lanes():
            return _lanes(panel)
        case Flow():
            return across(panel)
        case Grid():
            return _grid(panel)


def _grid(grid: Grid) -> Node:
    if not grid.rows:
        return h.p(".empty")[grid.empty]
    kinds = grid.kinds or ("",) * len(grid.rows)
    rows = [
        [h.span(class_=f"k-{kind}" if kind else None)[cell] for cell in row]
        for row, kind in zip(grid.rows, kinds, strict=True)
    ]
    return table(grid.columns, rows, caption=None)


def picture(panel: Plot | Lanes | Flow) -> Element:
    """A panel as an SVG element."""
    body = _body(panel)
    assert isinstance(body, Element)
    return body


# Plots


def _plot(plot: Plot) -> Element:
    area = _Area(plot)
    return svg(
        plot.height,
        plot.description,
        (area.band(band) for band in plot.bands),
        area.axes(),
        (area.line(line) for line in plot.lines),
        (area.point(point) for point in plot.points),
    )


class _Area:
    """The place of values in a plot."""

    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.bottom = plot.height - _BOTTOM

    def x(self, value: float) -> float:
        return _place(self.plot.x, value, _LEFT, WIDTH - _RIGHT)

    def y(self, value: float) -> float:
        return _place(self.plot.y, value, self.bottom, _TOP)

    def axes(self) -> Iterator[Node]:
        for value in ticks(self.plot.x):
            x = num(self.x(value))
            yield h.line(".tick", x1=x, x2=x, y1=num(_TOP), y2=num(self.bottom))
            yield label(x, self.bottom + 16, f"{value:g}", "tick-label", "middle")
        for value in ticks(self.plot.y):
            y = self.y(value)
            yield h.line(".tick", x1=num(_LEFT), x2=num(WIDTH - _RIGHT), y1=num(y), y2=num(y))
            yield label(_LEFT - 8, y + 4, f"{value:g}", "tick-label", "end")
        yield label((_LEFT + WIDTH) / 2, self.bottom + 34, self.plot.x.label, "axis", "middle")
        middle = (_TOP + self.bottom) / 2
        turned = f"rotate(-90 14 {num(middle)})"
        yield h.text(".axis", {"text-anchor": "middle"}, x="14", y=num(middle), transform=turned)[
            self.plot.y.label
        ]

    def band(self, band: Band) -> Node:
        low = self.plot.y.start if band.low is None else band.low
        high = self.plot.y.end if band.high is None else band.high
        left, right = self.x(band.start), self.x(band.end)
        top, bottom = self.y(high), self.y(low)
        return h.g(class_=styled("band", band.kind))[
            h.rect(
                x=num(left), y=num(top), width=num(max(0, right - left)), height=num(bottom - top)
            ),
            band.label and label((left + right) / 2, top + 14, band.label, "band-label", "middle"),
        ]

    def line(self, line: Line) -> Node:
        if not line.points:
            return None
        places = " ".join(f"{num(self.x(x))},{num(self.y(y))}" for x, y in line.points)
        last = line.points[-1]
        right = self.x(last[0]) > WIDTH - 120
        return h.g(class_=styled("line", line.kind))[
            h.polyline(points=places),
            line.label
            and label(
                self.x(last[0]) + (-6 if right else 6),
                self.y(last[1]) - 6,
                line.label,
                "line-label",
                "end" if right else "start",
            ),
        ]

    def point(self, point: Point) -> Node:
        x, y = self.x(point.x), self.y(point.y)
        return h.g(class_=styled("point", point.kind))[
            _shape(point.kind, x, y),
            point.hint and h.title[point.hint],
            point.label and label(x, y - 9, point.label, "point-label", "middle"),
        ]


def _shape(kind: str, x: float, y: float) -> Element:
    match kind:
        case "late" | "bad":
            cross = f"M{num(x - 5)} {num(y - 5)}l10 10M{num(x + 5)} {num(y - 5)}l-10 10"
            return h.path(".cross", d=cross)
        case "warn":
            return h.path(d=f"M{num(x)} {num(y - 7)}l7 7l-7 7l-7 -7z")
        case _:
            return h.circle(cx=num(x), cy=num(y), r="5")


def ticks(axis: Axis) -> list[float]:
    """Round values along an axis: at most ten."""
    span = axis.end - axis.start
    if span <= 0:
        return [axis.start]
    rough = span / 8
    power = 10 ** math.floor(math.log10(rough))
    by = next(by * power for by in (1, 2, 5, 10) if by * power >= rough)
    first = math.ceil(axis.start / by)
    return [round(n * by, 10) for n in range(first, math.floor(axis.end / by) + 1)]


def _place(axis: Axis, value: float, low: float, high: float) -> float:
    span = (axis.end - axis.start) or 1
    share = min(1.0, max(0.0, (value - axis.start) / span))
    return low + share * (high - low)


# Lanes


def _lanes(lanes: Lanes) -> Element:
    most = max((len(lane.cells) for lane in lanes.lanes), default=0)
    width = max(WIDTH, _LABEL + most * _CELL + 60)
    height = len(lanes.lanes) * _LANE + 8
    drawn = [_lane(lane, place * _LANE + 8) for place, lane in enumerate(lanes.lanes)]
    return svg(height, lanes.description, drawn, width=width)


def _lane(lane: Lane, top: float) -> Element:
    end = _LABEL + len(lane.cells) * _CELL
    return h.g(".lane")[
        label(0, top + 19, lane.label, "lane-label"),
        lane.note and label(0, top + 36, lane.note, "lane-note"),
        (
            h.g(class_=styled("cell", cell.kind))[
                h.rect(
                    x=num(_LABEL + place * _CELL),
                    y=num(top),
                    width=num(_CELL - 4),
                    height="28",
                    rx="5",
                ),
                label(_LABEL + place * _CELL + (_CELL - 4) / 2, top + 19, cell.text, "", "middle"),
                cell.hint and h.title[cell.hint],
            ]
            for place, cell in enumerate(lane.cells)
        ),
        h.line(".lane-end", x1=num(end + 2), x2=num(end + 2), y1=num(top - 2), y2=num(top + 32)),
        _pointers(lane, top + 32),
    ]


def _pointers(lane: Lane, top: float) -> Iterator[Element]:
    taken: dict[int, int] = {}
    for pointer in lane.pointers:
        place = min(max(pointer.at - lane.first, 0), len(lane.cells))
        beside = taken.get(place, 0)
        taken[place] = beside + 1
        x = _LABEL + place * _CELL + (_CELL - 4) / 2 + beside * 26
        yield h.g(class_=styled("pointer", pointer.kind))[
            h.path(d=f"M{num(x)} {num(top)}l6 8h-12z"),
            label(x, top + 22, pointer.label, "", "middle"),
        ]
