"""Addresses with parameters, and links to further pages."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import htpy as h
from htpy import Node


def address(path: str, parameters: Mapping[str, object]) -> str:
    """A path with those parameters that have a value."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def pager(path: str, parameters: Mapping[str, object], name: str, page: int, pages: int) -> Node:
    """Links to the neighbours of a page; nothing if there is only one."""
    if pages <= 1:
        return None

    def link(to: int, text: str) -> Node:
        if not 1 <= to <= pages:
            return h.span(".hint")[text]
        return h.a(href=address(path, {**parameters, name: to if to > 1 else ""}))[text]

    return h.nav(".links", aria_label="Pages")[
        link(page - 1, "‹ Before"), h.span[f"Page {page} of {pages}"], link(page + 1, "Next ›")
    ]
