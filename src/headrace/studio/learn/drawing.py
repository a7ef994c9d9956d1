"""Draw the panels of a frame as SVG and tables. Colours come from the style sheet, by kind.

Nothing is told by colour alone: points have shapes, cells have text, and each panel has a
description in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import htpy as h
from htpy import Element, Node

from headrace.studio.learn.frame import (
    Arrow,
    Axis,
    Band,
    Box,
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
from headrace.studio.pages import Fact, facts, table

WIDTH = 760
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 40
_CELL, _LANE, _LABEL = 40, 66, 110
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW = 140, 74, 200, 104
_WIDE = 256
"""The distance of columns with long labels between them. It is fixed, so that nothing jumps."""


def drawn(frame: Frame) -> Element:
    """A frame: its caption, its numbers and its panels."""
    return h.div("#frame", data_step=str(frame.step), data_steps=str(frame.steps))[
        h.p(".caption", role="status")[frame.caption],
        facts(Fact(n.name, n.text, n.kind, n.hint) for n in frame.numbers),
        [panel_of(panel) for panel in frame],
    ]


def panel_of(panel: Panel) -> Element:
    """A panel with its title."""
    return h.figure(".panel")[h.figcaption[panel.title], _body(panel)]


def _body(panel: Panel) -> Node:
    match panel:
        case Plot():
            return _plot(panel)
        case Lanes():
            return _lanes(panel)
        case Flow():
            return _flow(panel)
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


def _svg(height: float, description: str, *content: Node, width: float = WIDTH) -> Element:
    return h.div(".scroll", tabindex="0", role="group", aria_label=description)[
        h.svg(
            ".drawing",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_n(width)} {_n(height)}",
            width=_n(width),
            role="img",
            aria_label=description,
        )[content]
    ]


# Plots


def _plot(plot: Plot) -> Element:
    area = _Area(plot)
    return _svg(
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
            x = _n(self.x(value))
            yield h.line(".tick", x1=x, x2=x, y1=_n(_TOP), y2=_n(self.bottom))
            yield _text(x, self.bottom + 16, f"{value:g}", "tick-label", "middle")
        for value in ticks(self.plot.y):
            y = self.y(value)
            yield h.line(".tick", x1=_n(_LEFT), x2=_n(WIDTH - _RIGHT), y1=_n(y), y2=_n(y))
            yield _text(_LEFT - 8, y + 4, f"{value:g}", "tick-label", "end")
        yield _text((_LEFT + WIDTH) / 2, self.bottom + 34, self.plot.x.label, "axis", "middle")
        middle = (_TOP + self.bottom) / 2
        turned = f"rotate(-90 14 {_n(middle)})"
        yield h.text(".axis", {"text-anchor": "middle"}, x="14", y=_n(middle), transform=turned)[
            self.plot.y.label
        ]

    def band(self, band: Band) -> Node:
        low = self.plot.y.start if band.low is None else band.low
        high = self.plot.y.end if band.high is None else band.high
        left, right = self.x(band.start), self.x(band.end)
        top, bottom = self.y(high), self.y(low)
        return h.g(class_=_kind("band", band.kind))[
            h.rect(x=_n(left), y=_n(top), width=_n(max(0, right - left)), height=_n(bottom - top)),
            band.label and _text((left + right) / 2, top + 14, band.label, "band-label", "middle"),
        ]

    def line(self, line: Line) -> Node:
        if not line.points:
            return None
        places = " ".join(f"{_n(self.x(x))},{_n(self.y(y))}" for x, y in line.points)
        last = line.points[-1]
        right = self.x(last[0]) > WIDTH - 120
        return h.g(class_=_kind("line", line.kind))[
            h.polyline(points=places),
            line.label
            and _text(
                self.x(last[0]) + (-6 if right else 6),
                self.y(last[1]) - 6,
                line.label,
                "line-label",
                "end" if right else "start",
            ),
        ]

    def point(self, point: Point) -> Node:
        x, y = self.x(point.x), self.y(point.y)
        return h.g(class_=_kind("point", point.kind))[
            _shape(point.kind, x, y),
            point.hint and h.title[point.hint],
            point.label and _text(x, y - 9, point.label, "point-label", "middle"),
        ]


def _shape(kind: str, x: float, y: float) -> Element:
    match kind:
        case "late" | "bad":
            cross = f"M{_n(x - 5)} {_n(y - 5)}l10 10M{_n(x + 5)} {_n(y - 5)}l-10 10"
            return h.path(".cross", d=cross)
        case "warn":
            return h.path(d=f"M{_n(x)} {_n(y - 7)}l7 7l-7 7l-7 -7z")
        case _:
            return h.circle(cx=_n(x), cy=_n(y), r="5")


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
    return _svg(height, lanes.description, drawn, width=width)


def _lane(lane: Lane, top: float) -> Element:
    end = _LABEL + len(lane.cells) * _CELL
    return h.g(".lane")[
        _text(0, top + 19, lane.label, "lane-label"),
        lane.note and _text(0, top + 36, lane.note, "lane-note"),
        (
            h.g(class_=_kind("cell", cell.kind))[
                h.rect(
                    x=_n(_LABEL + place * _CELL),
                    y=_n(top),
                    width=_n(_CELL - 4),
                    height="28",
                    rx="5",
                ),
                _text(_LABEL + place * _CELL + (_CELL - 4) / 2, top + 19, cell.text, "", "middle"),
                cell.hint and h.title[cell.hint],
            ]
            for place, cell in enumerate(lane.cells)
        ),
        h.line(".lane-end", x1=_n(end + 2), x2=_n(end + 2), y1=_n(top - 2), y2=_n(top + 32)),
        _pointers(lane, top + 32),
    ]


def _pointers(lane: Lane, top: float) -> Iterator[Element]:
    taken: dict[int, int] = {}
    for pointer in lane.pointers:
        place = min(max(pointer.at - lane.first, 0), len(lane.cells))
        beside = taken.get(place, 0)
        taken[place] = beside + 1
        x = _LABEL + place * _CELL + (_CELL - 4) / 2 + beside * 26
        yield h.g(class_=_kind("pointer", pointer.kind))[
            h.path(d=f"M{_n(x)} {_n(top)}l6 8h-12z"),
            _text(x, top + 22, pointer.label, "", "middle"),
        ]


# Flows


def _flow(flow: Flow) -> Element:
    boxes = {box.name: box for box in flow.boxes}
    column = _WIDE if flow.wide else _COLUMN
    width = max(column * max(box.column for box in flow.boxes) + _BOX_WIDTH + 8, WIDTH)
    tallest = max(len(box.lines) for box in flow.boxes)
    height = _ROW * max(box.row for box in flow.boxes) + _height(tallest) + 16
    return _svg(
        height,
        flow.description,
        (_arrow(arrow, boxes, column) for arrow in flow.arrows),
        (_box(box, column) for box in flow.boxes),
        width=width,
    )


def _height(lines: int) -> float:
    return max(_BOX_HEIGHT - 26, 32 + 16 * lines)


def _corner(box: Box, column: float) -> tuple[float, float]:
    return 4 + box.column * column, 8 + box.row * _ROW


def _box(box: Box, column: float) -> Element:
    x, y = _corner(box, column)
    return h.g(class_=_kind("box", box.kind))[
        h.rect(x=_n(x), y=_n(y), width=_n(_BOX_WIDTH), height=_n(_height(len(box.lines))), rx="8"),
        _text(x + _BOX_WIDTH / 2, y + 20, box.title, "box-title", "middle"),
        (
            _text(x + _BOX_WIDTH / 2, y + 38 + 16 * place, line, "box-line", "middle")
            for place, line in enumerate(box.lines)
        ),
    ]


def _arrow(arrow: Arrow, boxes: dict[str, Box], column: float) -> Element:
    left, right = boxes[arrow.start], boxes[arrow.end]
    x1, y1 = _corner(left, column)
    x2, y2 = _corner(right, column)
    y1 += _height(len(left.lines)) / 2
    y2 += _height(len(right.lines)) / 2
    forward = x2 >= x1
    x1, x2 = (x1 + _BOX_WIDTH, x2) if forward else (x1, x2 + _BOX_WIDTH)
    bend = (x1 + x2) / 2
    head = 7 if forward else -7
    start, end = f"{_n(x1)} {_n(y1)}", f"{_n(x2 - head)} {_n(y2)}"
    steps = len(arrow.tokens) + 1
    return h.g(class_=_kind("arrow", arrow.kind))[
        h.path(".shaft", d=f"M{start}C{_n(bend)} {_n(y1)} {_n(bend)} {_n(y2)} {end}"),
        h.path(".head", d=f"M{_n(x2)} {_n(y2)}l{_n(-head)} 5v-10z"),
        arrow.label and _text(bend, (y1 + y2) / 2 - 10, arrow.label, "arrow-label", "middle"),
        (
            h.g(class_=_kind("token", token.kind))[
                h.circle(
                    cx=_n(x1 + (x2 - x1) * (place + 1) / steps),
                    cy=_n(y1 + (y2 - y1) * (place + 1) / steps),
                    r="10",
                ),
                _text(
                    x1 + (x2 - x1) * (place + 1) / steps,
                    y1 + (y2 - y1) * (place + 1) / steps + 4,
                    token.text,
                    "",
                    "middle",
                ),
                token.hint and h.title[token.hint],
            ]
            for place, token in enumerate(arrow.tokens)
        ),
    ]


# Small things


def _text(
    x: float | str, y: float | str, text: str, class_: str = "", anchor: str = "start"
) -> Element:
    return h.text({"text-anchor": anchor, "class": class_ or None}, x=_n(x), y=_n(y))[text]


def _kind(what: str, kind: str) -> str:
    return f"{what} k-{kind}" if kind else what


def _n(number: float | str) -> str:
    """A number as SVG has it: short, and the same on every machine."""
    return number if isinstance(number, str) else f"{number:.1f}".removesuffix(".0")
