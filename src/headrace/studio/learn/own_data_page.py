"""The page of your own data, and the same frame as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import htpy as h
from fastapi import APIRouter, Request
from htpy import Element
from starlette.responses import HTMLResponse

from headrace.errors import InvalidSetting
from headrace.studio.learn.drawing import drawn
from headrace.studio.learn.fields import field, form
from headrace.studio.learn.own_data import (
    DELAY,
    GRACE,
    NAME,
    ROWS,
    SIZE,
    WINDOW,
    Chosen,
    chosen_from,
    frame,
    topics,
)
from headrace.studio.learn.simulation import Choice
from headrace.studio.live.handles import Opened
from headrace.studio.pages import page, section

router = APIRouter()


@router.get(f"/learn/{NAME}", include_in_schema=False)
def show(request: Request, handles: Opened) -> HTMLResponse:
    """The windows of a topic of the log, and what delays would have cost."""
    title = "Your own data"
    lead = h.p(".lead")[
        f"The windows of a topic in your log: its newest rows, at most {ROWS:,}, as they arrived. "
        "What would a delay of 30 s have cost?"
    ]
    names = topics(handles.log)
    if not names:
        empty = "No topic of this log has an event time. headrace demo makes one."
        return page(request, title, lead, h.p(".empty")[empty])
    chosen = chosen_from(names, request.query_params)
    body = h.div(".simulation")[
        _controls(names, chosen), h.div(".stage")[drawn(frame(handles.log, chosen))]
    ]
    asked = replace(chosen, delay=30)
    return page(
        request,
        title,
        lead,
        body,
        section(
            "Try this",
            h.ul(".prompts")[
                h.li[h.a(href=_address(asked))["What would a delay of 30 s have cost?"]],
                h.li[h.a(href=_address(replace(chosen, delay=0)))["Do not wait at all."]],
                h.li[h.a(href=_address(replace(chosen, delay=0, grace=60)))["Correct instead."]],
            ],
        ),
        wide=True,
    )


@router.get(f"/api/learn/{NAME}", tags=["learn"])
def as_data(request: Request, handles: Opened) -> dict[str, Any]:
    """The windows of a topic of the log as plain data. Its settings are query parameters."""
    names = topics(handles.log)
    if not names:
        raise InvalidSetting("No topic of this log has an event time", hint="headrace demo")
    return frame(handles.log, chosen_from(names, request.query_params)).plain()


def _address(chosen: Chosen) -> str:
    query = {
        "topic": chosen.topic,
        "window": chosen.window,
        "size": chosen.size,
        "delay": f"{chosen.delay:g}",
        "grace": f"{chosen.grace:g}",
    }
    return f"/learn/{NAME}?{urlencode(query)}"


def _controls(names: Sequence[str], chosen: Chosen) -> Element:
    own = Choice("topic", "Topic", tuple((name, name) for name in names), names[0])
    return form(
        "#own.controls",
        f"/learn/{NAME}",
        field(own, chosen.topic),
        field(WINDOW, chosen.window),
        field(SIZE, str(chosen.size)),
        field(DELAY, chosen.delay),
        field(GRACE, chosen.grace),
        h.noscript[h.button(type="submit")["Show"]],
    )
