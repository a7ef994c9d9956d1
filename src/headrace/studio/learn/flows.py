"""Draw flows: from left to right, or from top to bottom for a phone."""

from __future__ import annotations

from collections.abc import Mapping

import htpy as h
from htpy import Element

from headrace.studio.learn.frame import Arrow, Box, Flow
from headrace.studio.learn.svg import WIDTH, label, num, styled, svg

_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW = 140, 74, 200, 104
_WIDE = 256
"""The distance of columns with long labels between them. It is fixed, so that nothing jumps."""
_ABREAST = 3
"""Boxes beside each other on a phone."""
_BESIDE, _BELOW = 152, 44

Place = tuple[float, float]
Places = Mapping[str, Place]


def across(flow: Flow) -> Element:
    """A flow from left to right."""
    column = _WIDE if flow.wide else _COLUMN
    width = max(column * max(box.column for box in flow.boxes) + _BOX_WIDTH + 8, WIDTH)
    tallest = max(len(box.lines) for box in flow.boxes)
    height = _ROW * max(box.row for box in flow.boxes) + _height(tallest) + 16
    places = {box.name: (4 + box.column * column, 8 + box.row * _ROW) for box in flow.boxes}
    return _drawn(flow, places, height, width, down=False)


def downward(flow: Flow) -> Element | None:
    """A flow from top to bottom for a phone; None if its arrows would cross other boxes."""
    columns: dict[float, list[Box]] = {}
    for box in sorted(flow.boxes, key=lambda box: (box.column, box.row)):
        columns.setdefault(box.column, []).append(box)
    boxes, lines = {box.name: box for box in flow.boxes}, list(columns)
    far = any(
        lines.index(boxes[arrow.end].column) - lines.index(boxes[arrow.start].column) != 1
        for arrow in flow.arrows
    )
    most = max(map(len, columns.values()))
    if far or most > _ABREAST:
        return None
    places: dict[str, Place] = {}
    y = 8.0
    for line in columns.values():
        left = 4 + _BESIDE * (most - len(line)) / 2
        places |= {box.name: (left + _BESIDE * place, y) for place, box in enumerate(line)}
        y += max(_height(len(box.lines)) for box in line) + _BELOW
    width = _BESIDE * (most - 1) + _BOX_WIDTH + 8
    return _drawn(flow, places, y - _BELOW + 8, width, down=True)


def _drawn(flow: Flow, places: Places, height: float, width: float, *, down: bool) -> Element:
    boxes = {box.name: box for box in flow.boxes}
    return svg(
        height,
        flow.description,
        (_arrow(arrow, boxes, places, down=down) for arrow in flow.arrows),
        (_box(box, places[box.name]) for box in flow.boxes),
        width=width,
        class_="drawing narrow" if down else "drawing",
    )


def _height(lines: int) -> float:
    return max(_BOX_HEIGHT - 26, 32 + 16 * lines)


def _box(box: Box, place: Place) -> Element:
    x, y = place
    return h.g(class_=styled("box", box.kind))[
        h.rect(
            x=num(x), y=num(y), width=num(_BOX_WIDTH), height=num(_height(len(box.lines))), rx="8"
        ),
        label(x + _BOX_WIDTH / 2, y + 20, box.title, "box-title", "middle"),
        (
            label(x + _BOX_WIDTH / 2, y + 38 + 16 * place, line, "box-line", "middle")
            for place, line in enumerate(box.lines)
        ),
    ]


def _arrow(arrow: Arrow, boxes: Mapping[str, Box], places: Places, *, down: bool) -> Element:
    left, right = boxes[arrow.start], boxes[arrow.end]
    (x1, y1), (x2, y2) = places[arrow.start], places[arrow.end]
    if down:
        shape, head, (x1, y1), (x2, y2) = _downwards(
            (x1 + _BOX_WIDTH / 2, y1), (x2 + _BOX_WIDTH / 2, y2),
            _height(len(left.lines)), _height(len(right.lines)),
        )  # fmt: skip
    else:
        shape, head, (x1, y1), (x2, y2) = _sideways(
            (x1, y1 + _height(len(left.lines)) / 2), (x2, y2 + _height(len(right.lines)) / 2)
        )
    steps = len(arrow.tokens) + 1
    return h.g(class_=styled("arrow", arrow.kind))[
        h.path(".shaft", d=shape),
        h.path(".head", d=head),
        arrow.label
        and label(
            (x1 + x2) / 2 + (6 if down else 0),
            (y1 + y2) / 2 + (4 if down else -10),
            arrow.label,
            "arrow-label",
            "start" if down else "middle",
        ),
        (
            h.g(class_=styled("token", token.kind))[
                h.circle(
                    cx=num(x1 + (x2 - x1) * (place + 1) / steps),
                    cy=num(y1 + (y2 - y1) * (place + 1) / steps),
                    r="10",
                ),
                label(
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


def _sideways(start: Place, end: Place) -> tuple[str, str, Place, Place]:
    """The shaft and the head of an arrow between the sides of two boxes, and its ends."""
    (x1, y1), (x2, y2) = start, end
    forward = x2 >= x1
    x1, x2 = (x1 + _BOX_WIDTH, x2) if forward else (x1, x2 + _BOX_WIDTH)
    bend = num((x1 + x2) / 2)
    head = 7 if forward else -7
    curve = f"C{bend} {num(y1)} {bend} {num(y2)} {num(x2 - head)} {num(y2)}"
    return (
        f"M{num(x1)} {num(y1)}{curve}",
        f"M{num(x2)} {num(y2)}l{num(-head)} 5v-10z",
        (x1, y1),
        (x2, y2),
    )


def _downwards(
    start: Place, end: Place, first: float, second: float
) -> tuple[str, str, Place, Place]:
    """The same between the bottom of a box and the top of another, of these heights."""
    (x1, y1), (x2, y2) = start, end
    forward = y2 >= y1
    y1, y2 = (y1 + first, y2) if forward else (y1, y2 + second)
    bend = num((y1 + y2) / 2)
    head = 7 if forward else -7
    curve = f"C{num(x1)} {bend} {num(x2)} {bend} {num(x2)} {num(y2 - head)}"
    return (
        f"M{num(x1)} {num(y1)}{curve}",
        f"M{num(x2)} {num(y2)}l5 {num(-head)}h-10z",
        (x1, y1),
        (x2, y2),
    )
