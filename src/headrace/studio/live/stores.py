"""Stores of views beside SQLite: state, lag and last batch of each, and a search of an index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Node
from starlette.responses import HTMLResponse

from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.store.search import open_search
from headrace.store.status import StoreStatus, seconds_behind, statuses
from headrace.studio.live.cells import cell, path_of
from headrace.studio.live.drawn import clock_time
from headrace.studio.live.following import following
from headrace.studio.live.handles import Handles, Opened
from headrace.studio.live.verified import verifications
from headrace.studio.pages import badge, failure, live, page, section, table
from headrace.wording import span

router = APIRouter()

SEARCH = "search:"
_HITS = 20
_SECONDS = 5.0
_STATES = {
    "following": "good",
    "building": "warn",
    "failing": "bad",
    "new": "muted",
    "stopped": "muted",
}
_OPEN, _CLOSE = "\ue000", "\ue001"
"""Marks around a word that was found, which no text has."""


@router.get("/stores", include_in_schema=False)
def stores(
    request: Request,
    opened: Opened,
    view: Annotated[str, Query(max_length=520)] = "",
    q: Annotated[str, Query(max_length=1_000)] = "",
) -> HTMLResponse:
    """All stores, and the rows of a search index that have some words."""
    found = _statuses(opened.log)
    indexes = {
        f"{each.app}.{each.view}": (each.app, each.view)
        for each in found
        if each.store.startswith(SEARCH)
    }
    return page(
        request,
        "Stores",
        h.p(".lead")["Copies of views in other stores. Each follows the changes of its view."],
        live("/stores/live", _followed(opened.log), id="stores"),
        bool(indexes) and _search(opened, indexes, view, q),
        wide=True,
    )


@router.get("/stores/live", include_in_schema=False, response_class=EventSourceResponse)
async def stores_live(request: Request, opened: Opened) -> AsyncIterator[ServerSentEvent]:
    """The stores, whenever something changes."""
    async for event in following(request, partial(_followed, opened.log), every=1.0):
        yield event


@router.get("/api/stores", tags=["stores"])
def stores_json(opened: Opened) -> list[dict[str, Any]]:
    """The stores of views: state, lag in changes and in seconds, last batch and last error."""
    return [
        {
            "app": each.app,
            "view": each.view,
            "store": each.store,
            "state": each.state,
            "lag": each.lag,
            "behind": seconds_behind(each),
            "applied": each.applied,
            "last_rows": each.last_rows,
            "error": each.error or None,
        }
        for each in _statuses(opened.log)
    ]


def _statuses(log: Log) -> list[StoreStatus]:
    return statuses(log, SystemClock().now())


def _followed(log: Log) -> Node:
    return [_listed(_statuses(log)), verifications(log)]


def _listed(found: list[StoreStatus]) -> Node:
    failing = [each for each in found if each.error]
    return [
        table(
            ("view", "application", "store", "state", "lag", "behind", "last batch", "rows in it"),
            [
                (
                    h.a(href=path_of(each.app, each.view))[each.view],
                    each.app,
                    h.code[each.store],
                    badge(each.state, _STATES.get(each.state, "")),
                    h.span(class_="k-warn" if each.lag else None)[
                        "unknown" if each.lag is None else f"{each.lag:,}"
                    ],
                    span(seconds_behind(each)) if each.behind else "–",
                    clock_time(each.last_batch),
                    f"{each.last_rows:,}",
                )
                for each in found
            ],
            numeric=("lag", "rows in it"),
            caption="Lag counts the changes of the view that the store does not show yet.",
            empty=[
                "No view of this log has a store beside SQLite: ",
                h.code["app.view(..., store='search:')"],
                " declares one.",
            ],
        ),
        [
            failure(f"{each.app}.{each.view} in {each.store}: {each.error}", each.hint or None)
            for each in failing
        ],
    ]


def _search(handles: Handles, indexes: dict[str, tuple[str, str]], view: str, text: str) -> Node:
    chosen = view if view in indexes else next(iter(indexes))
    return section(
        "Search",
        h.form(
            ".row",
            {"hx-get": "/stores"},
            action="/stores",
            method="get",
            role="search",
            hx_target="#hits",
            hx_select="#hits",
            hx_swap="outerHTML",
        )[
            h.label[
                "Index",
                h.select(name="view")[
                    (h.option(value=name, selected=name == chosen)[name] for name in indexes)
                ],
            ],
            h.label[
                "Words",
                h.input(type="search", name="q", value=text, placeholder="blue sho* -suede"),
            ],
            h.button(".primary", type="submit")["Search"],
        ],
        h.div("#hits", aria_live="polite")[
            bool(text.strip()) and _hits(handles, *indexes[chosen], text)
        ],
    )


def _hits(handles: Handles, app: str, view: str, text: str) -> Node:
    try:
        with open_search(view, handles.log.home, app=app) as index:
            found = index.search(text, limit=_HITS, marks=(_OPEN, _CLOSE), seconds=_SECONDS)
    except HeadraceError as error:
        return failure(error.message, error.hint)
    columns = tuple(found.hits[0].row) if found.hits else ()
    return [
        table(
            ("score", "found", *columns),
            [
                (
                    f"{hit.score:.2f}",
                    _marked(hit.snippet),
                    *(cell(hit.row[column], column) for column in columns),
                )
                for hit in found.hits
            ],
            numeric=("score",),
            caption="The best matches first.",
            empty=f"No row of {app}.{view} has these words.",
        ),
        found.more and h.p(".hint")[f"There are more. Only the first {_HITS} are shown."],
    ]


def _marked(snippet: str) -> Node:
    """A snippet, with the words that were found marked."""
    first, *rest = snippet.split(_OPEN)
    parts: list[Node] = [first]
    for part in rest:
        word, _, after = part.partition(_CLOSE)
        parts += [h.mark[word], after]
    return parts
