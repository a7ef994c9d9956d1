"""Parts of drawings: an SVG element, texts, classes and numbers."""

from __future__ import annotations

import htpy as h
from htpy import Element, Node

WIDTH = 760


def svg(
    height: float, description: str, *content: Node, width: float = WIDTH, class_: str = "drawing"
) -> Element:
    """A drawing that scrolls by itself where it is too wide."""
    return h.div(".scroll", tabindex="0", role="group", aria_label=description)[
        h.svg(
            class_=class_,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {num(width)} {num(height)}",
            width=num(width),
            role="img",
            aria_label=description,
        )[content]
    ]


def label(
    x: float | str, y: float | str, text: str, class_: str = "", anchor: str = "start"
) -> Element:
    """A text, with a class and an anchor."""
    return h.text({"text-anchor": anchor, "class": class_ or None}, x=num(x), y=num(y))[text]


def styled(what: str, kind: str) -> str:
    """The classes of an element of a kind."""
    return f"{what} k-{kind}" if kind else what


def num(number: float | str) -> str:
    """A number as SVG has it: short, and the same on every machine."""
    return number if isinstance(number, str) else f"{number:.1f}".removesuffix(".0")
