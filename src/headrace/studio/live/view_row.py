"""The page of a row: the events that made it, and its history."""

from __future__ import annotations

from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Query, Request
from htpy import Element
from starlette.responses import HTMLResponse

from headrace.clock import to_datetime
from headrace.errors import UnknownView
from headrace.store.sqlite.stored import steps_in
from headrace.studio.live import why
from headrace.studio.live.cells import NAMES, cell, moment, path_of, text_of
from headrace.studio.live.handles import Opened
from headrace.studio.live.rows import Described, database, described, opened, row_of
from headrace.studio.pages import Fact, facts, page, section, table

EVENTS = 50
_OPS = {"c": "created", "u": "updated", "d": "deleted", "r": "read"}

router = APIRouter()


@router.get("/views/{app}/{view}/row", include_in_schema=False)
def row(
    request: Request,
    handles: Opened,
    app: str,
    view: str,
    k: Annotated[list[str] | None, Query()] = None,
) -> HTMLResponse:
    """A row of a view: the events that made it, and its history. `k` are the values of its key."""
    with opened(handles.views, app) as db:
        found = described(db, app, view)
        values = row_of(db, found, k or [])
    if values is None:
        raise UnknownView(
            f"View {view!r} has no such row", hint="It may be gone. Go back to the view"
        )
    shown = dict(zip(found.columns, values, strict=True))
    declared = handles.settings.declared.get(app)
    step = steps_in(database(handles.views, app)).get(found.step)
    reached = {} if step is None else {name: at.commit for name, at in step.reached.items()}
    return page(
        request,
        "Why this row",
        h.p(".lead")["A row of ", h.a(href=path_of(app, view))[f"{app}.{view}"], "."],
        facts(Fact(NAMES.get(name, name), text_of(value)) for name, value in shown.items()),
        _events(why.events_of(handles.log, declared, found, shown, reached), found, shown),
        _history(why.history_of(handles.log, found, values), found),
        wide=True,
    )


def _events(found: why.Why, view: Described, row: dict[str, Any]) -> Element:
    if found.reason:
        return section("The events that made it", h.p(".note")[found.reason])
    columns = list(dict.fromkeys(name for event in found.events[:EVENTS] for name in event.row))
    body = [
        [
            str(event.commit),
            str(event.partition),
            str(event.offset),
            why.shown(to_datetime(event.moment)),
            *(cell(why.shown(event.row.get(name))) for name in columns),
        ]
        for event in found.events[:EVENTS]
    ]
    result = found.result or {}
    compared = [name for name in view.columns if name in result and not name.startswith("_")]
    equal = all(text_of(result[name]) == text_of(row[name]) for name in compared)
    return section(
        "The events that made it",
        facts(
            [
                Fact("events", f"{len(found.events):,}"),
                Fact("late", f"{found.late:,}", "late" if found.late else ""),
                Fact("recount", "equal" if equal else "differs", "good" if equal else "warn"),
            ]
        ),
        not equal
        and h.p(".hint")[
            "The recount is exact. A view may estimate, as distinct counts do, or be behind."
        ],
        table(
            ("commit", "partition", "offset", "event time", *columns),
            body,
            numeric=("commit", "partition", "offset"),
            caption=f"{len(body):,} of {len(found.events):,} events from "
            + ", ".join(found.topics),
        ),
    )


def _history(found: why.History, view: Described) -> Element:
    if found.reason:
        return section("Its history", h.p(".note")[found.reason])
    names = [n for n in view.columns if not n.startswith("_") and n not in view.key]
    body = [
        [
            str(change.commit),
            moment(change.appended),
            _OPS.get(change.op, change.op),
            *(cell((change.row or {}).get(name)) for name in names),
        ]
        for change in found.changes
    ]
    return section(
        "Its history",
        table(
            ("commit", "written", "change", *names),
            body,
            numeric=("commit", *(name for name in view.right if name in names)),
            caption="Changes of this row, newest first",
            empty="The changelog has no change of this row.",
        ),
    )
