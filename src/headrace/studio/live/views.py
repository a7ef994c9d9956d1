"""The pages of views: live rows and a chart, a query box, the past, and why a row is what it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import anyio.to_thread
import htpy as h
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.errors import HeadraceError
from headrace.log import Capability
from headrace.store import Result
from headrace.store.changelog import topic_of
from headrace.studio.live import why
from headrace.studio.live.cells import NAMES, cell, moment, path_of, text_of
from headrace.studio.live.charts import per_window
from headrace.studio.live.feed import Fed
from headrace.studio.live.following import following
from headrace.studio.live.handles import Handles, Opened
from headrace.studio.live.rows import (
    Described,
    described,
    newest,
    opened,
    progress,
    windows,
)
from headrace.studio.pages import Fact, facts, failure, live, page, section, table

ROWS = 30
PAGE = 50
QUERY_ROWS = 200
QUERY_SECONDS = 5.0

router = APIRouter()


@router.get("/views", include_in_schema=False)
def index(
    request: Request, handles: Opened, at: Annotated[int, Query(ge=1, le=10_000)] = 1
) -> HTMLResponse:
    """The list of views."""
    states = handles.views.list()
    shown = states[(at - 1) * PAGE : at * PAGE]
    rows = [
        (
            h.a(href=path_of(state.app, state.name))[state.name],
            state.app,
            f"{state.rows:,}",
            moment(state.watermark),
            ", ".join(state.key),
            f"{state.law.late:,}",
            f"{state.law.dead:,}",
        )
        for state in shown
    ]
    last = -(-len(states) // PAGE)
    return page(
        request,
        "Views",
        h.p(".lead")["Tables that pipelines keep up to date. Each is also a feed for programs."],
        table(
            ("view", "application", "rows", "watermark", "key", "late", "dead"),
            rows,
            numeric=("rows", "late", "dead"),
            empty="There is no view yet. A view exists once its application has run: "
            "headrace run MODULE:APP",
        ),
        last > 1
        and h.p(".hint")[
            at > 1 and h.a(href=f"/views?at={at - 1}")["Back"],
            f" Page {at} of {last} ",
            at < last and h.a(href=f"/views?at={at + 1}")["Next"],
        ],
        bool(states) and _query_box(f'SELECT * FROM "{states[0].name}" LIMIT 10'),
    )


@router.get("/views/query", include_in_schema=False)
def query(
    request: Request, handles: Opened, sql: Annotated[str, Query(max_length=20_000)] = ""
) -> HTMLResponse:
    """The answer to a SELECT, with limits of rows and of time."""
    return page(request, "Ask the views", _query_box(sql, _answer(handles, sql)))


@router.get("/views/{app}/{view}", include_in_schema=False)
def one(
    request: Request,
    handles: Opened,
    app: str,
    view: str,
    commit: Annotated[int | None, Query(ge=0, le=1 << 62)] = None,
) -> HTMLResponse:
    """A view: its rows as they are now, or as they were at a commit."""
    with opened(handles.views, app) as db:
        found = described(db, app, view)
    name = quote(view)
    head = [h.p(".lead")["Of application ", h.strong[app], ", by ", ", ".join(found.key), "."]]
    now = live(f"{path_of(app, view)}/live", _now(handles, app, view), id="now")
    return page(
        request,
        view,
        *head,
        _slider(handles, found, commit),
        h.div("#rows")[now if commit is None else _then(handles, found, commit)],
        _query_box(f'SELECT * FROM "{view}" LIMIT 10'),
        section(
            "As a feed",
            h.p["The newest rows as JSON, then every change, within moments of the commit:"],
            h.ul[
                h.li[h.code[f"GET /api/views/{name}"], " the newest rows"],
                h.li[h.code[f"GET /api/views/{name}/changes"], " server-sent events"],
                h.li[h.code[f"/ws/views/{name}"], " a WebSocket"],
            ],
        ),
        wide=True,
    )


@router.get("/views/{app}/{view}/live", include_in_schema=False, response_class=EventSourceResponse)
async def one_live(
    request: Request, handles: Opened, feeds: Fed, app: str, view: str
) -> AsyncIterator[ServerSentEvent]:
    """The rows of a view, again after each change."""
    watcher = await anyio.to_thread.run_sync(feeds.of, app, view)
    render = partial(_now, handles, app, view)
    async for event in following(request, render, changes=watcher.changes):
        yield event


# Parts


def _now(handles: Handles, app: str, view: str) -> Node:
    try:
        with opened(handles.views, app) as db:
            found = described(db, app, view)
            rows = newest(db, found, ROWS)
            count, law = progress(db, found)
            number = found.numbers[0] if found.windowed and found.numbers else None
            sums = windows(db, found, number) if number is not None else []
    except HeadraceError as error:
        return failure(error.message, error.hint)
    return [
        facts(
            [
                Fact("rows", f"{count:,}"),
                Fact("watermark", moment(found.watermark), hint="Windows up to here have fired"),
                Fact("late", f"{law.late:,}", "late" if law.late else ""),
                Fact("dead", f"{law.dead:,}", "bad" if law.dead else ""),
            ]
        ),
        h.p(".hint")[f"Every input row is accounted for: {law}."],
        number is not None and per_window(sums, number, sums[-1] if sums else None),
        _rows(found, rows, count),
    ]


def _then(handles: Handles, view: Described, commit: int) -> Node:
    past = why.past_of(handles.log, view, commit, ROWS)
    if past.reason:
        return h.p(".note")[past.reason]
    numeric = [name for name in view.right if name in past.columns]
    return [
        h.p(".note", role="status")[
            h.strong[f"As of commit {commit:,}. "],
            "Rebuilt from the changelog",
            f", of which the last {why.CHANGES:,} changes were read" if past.cut else "",
            ". States of windows are not kept. ",
            h.a(href=path_of(view.app, view.name))["Back to now"],
        ],
        table(
            past.columns,
            [[cell(found.get(name)) for name in past.columns] for found in past.rows],
            numeric=numeric,
            empty="The view had no rows then.",
        ),
    ]


def _rows(view: Described, rows: Sequence[Sequence[Any]], count: int) -> Node:
    names = [NAMES.get(name, name) for name in view.columns]
    places = [view.columns.index(name) for name in view.key]

    def link(found: Sequence[Any]) -> Node:
        key = [found[place] for place in places]
        if any(value is None for value in key):
            return ""
        query = urlencode([("k", text_of(value)) for value in key])
        return h.a(href=f"{path_of(view.app, view.name)}/row?{query}")["why?"]

    body = [
        [*(cell(v, name) for name, v in zip(view.columns, found, strict=True)), link(found)]
        for found in rows
    ]
    order = "newest windows first" if view.windowed else "last changed first"
    return table(
        (*names, "row"),
        body,
        numeric=[NAMES.get(name, name) for name in view.right],
        caption=f"{min(len(rows), count):,} of {count:,} rows, {order}",
        empty="The view has no rows yet.",
    )


def _slider(handles: Handles, view: Described, commit: int | None) -> Node:
    """The form that asks for the view as it was."""
    log = handles.log
    if reason := why.no_changelog(log, view):
        return h.p(".hint")["Only the present can be shown. ", reason]
    assert Capability.NUMBERED_APPENDS in log.capabilities
    first = log.commits(topic_of(view.app, view.name), 0, 1)
    head = log.head()
    if not first:
        return h.p(".hint")["Its changelog is empty so far, so only the present can be shown."]
    path = path_of(view.app, view.name)
    return h.form(
        "#past.row",
        {"hx-get": path, "hx-trigger": "input delay:60ms, submit"},
        action=path,
        method="get",
        hx_target="#rows",
        hx_select="#rows",
        hx_swap="outerHTML",
        hx_sync="this:replace",
    )[
        h.label(".grow")[
            "As of commit",
            h.input(
                type="range",
                name="commit",
                min=str(first[0].number),
                max=str(head),
                value=str(head if commit is None else min(commit, head)),
            ),
        ],
        h.noscript[h.button(type="submit")["Show"]],
    ]


def _query_box(sql: str, answer: Node = None) -> Element:
    return section(
        "Query",
        h.form(
            {"hx-get": "/views/query"},
            action="/views/query",
            method="get",
            hx_target="#answer",
            hx_select="#answer",
            hx_swap="outerHTML",
        )[
            h.label[
                h.span(".hint")["One SELECT in SQLite's dialect. It can only read."],
                h.textarea(name="sql", rows="3", spellcheck="false")[sql],
            ],
            h.p[h.button(".primary", type="submit")["Run"]],
        ],
        h.div("#answer", aria_live="polite")[answer],
    )


def _answer(handles: Handles, sql: str) -> Node:
    try:
        found = handles.views.query(sql, limit=QUERY_ROWS, seconds=QUERY_SECONDS)
    except HeadraceError as error:
        return failure(error.message, error.hint)
    return _answered(found)


def _answered(found: Result) -> Node:
    numeric = [
        name
        for place, name in enumerate(found.columns)
        if any(isinstance(row[place], int | float) for row in found.rows)
    ]
    return [
        table(
            found.columns or ("nothing",),
            [[cell(value) for value in row] for row in found.rows],
            numeric=numeric,
            caption=f"{len(found.rows):,} rows",
            empty="The query found no rows.",
        ),
        found.more and h.p(".hint")[f"There are more rows. Only the first {QUERY_ROWS} are shown."],
    ]
