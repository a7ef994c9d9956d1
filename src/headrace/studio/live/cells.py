"""Values of a view in a page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import htpy as h
from htpy import Node

from headrace.clock import to_datetime
from headrace.studio.live.rows import STATE
from headrace.studio.pages import badge

NAMES = {"_state": "state", "_revision": "commit"}
"""Columns of headrace's own, as a page calls them."""
_TEXT = 300
STATES = {"open": "", "fired": "warn", "final": "good"}


def cell(value: Any, column: str = "") -> Node:
    """A value in a table. A long one is cut."""
    if value is None:
        return h.span(".hint")["null"]
    if column == STATE:
        return badge(str(value), STATES.get(str(value), ""))
    text = text_of(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def text_of(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "null" if value is None else str(value)


def moment(micros: int | None) -> str:
    """A time in UTC."""
    return "none yet" if micros is None else f"{to_datetime(micros):%Y-%m-%d %H:%M:%S}"


def path_of(app: str, view: str) -> str:
    """The path of a view's page."""
    return f"/views/{quote(app, safe='')}/{quote(view, safe='')}"
