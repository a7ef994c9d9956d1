"""Any view as a feed: its newest rows as JSON, then the changes, over one watcher for all readers.

A reader gets the difference between what it was sent last and what is there now.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Query, WebSocket, WebSocketDisconnect
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.requests import HTTPConnection

from headrace.clock import to_datetime
from headrace.errors import HeadraceError, UnknownView
from headrace.plan.metadata import REVISION
from headrace.studio.live.handles import Handles, Opened
from headrace.studio.live.rows import described, newest, opened
from headrace.studio.live.watching import Watcher, plain_rows, snapshot


@dataclass
class Feeds:
    """The watchers of a studio, one for each view that somebody has listened to."""

    handles: Handles
    watchers: dict[tuple[str, str], Watcher] = field(default_factory=dict)

    def of(self, app: str, view: str) -> Watcher:
        """The watcher of a view. A view that is not there is refused, and leaves nothing."""
        views = self.handles.views
        if (app, view) not in self.watchers:
            with opened(views, app) as db:
                described(db, app, view)
            self.watchers[app, view] = Watcher(views, app, view)
        return self.watchers[app, view]

    def named(self, name: str) -> Watcher:
        """The watcher of `view`, or of `application.view` if several have it."""
        return self.of(*self.place(name))

    def place(self, name: str) -> tuple[str, str]:
        """The application and the view that a name means."""
        app, dot, view = name.partition(".")
        if dot and app in self.handles.views.apps():
            with contextlib.suppress(UnknownView), opened(self.handles.views, app) as db:
                return app, described(db, app, view).name
        state = self.handles.views.state(name)
        return state.app, state.name


def _feeds(connection: HTTPConnection) -> Feeds:
    state = connection.app.state
    if not hasattr(state, "feeds"):
        state.feeds = Feeds(state.handles)
    assert isinstance(state.feeds, Feeds)
    return state.feeds


Fed = Annotated[Feeds, Depends(_feeds)]
"""The feeds, as a parameter of a route."""

router = APIRouter()


@router.get("/api/views", tags=["views"])
def list_views(opened: Opened) -> list[dict[str, Any]]:
    """All views: their keys, columns and rows, and the law of their input."""
    return [
        {
            "name": state.name,
            "app": state.app,
            "key": state.key,
            "columns": dict(state.columns),
            "rows": state.rows,
            "watermark": None
            if state.watermark is None
            else to_datetime(state.watermark).isoformat(),
            "law": str(state.law),
        }
        for state in opened.views.list()
    ]


@router.get("/api/views/{name}", tags=["views"])
def rows_of_view(
    feeds: Fed,
    name: str,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    since: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """The newest rows of a view. With `since`, those of them that a later commit changed."""
    app, view = feeds.place(name)
    with opened(feeds.handles.views, app) as db:
        found = described(db, app, view)
        rows = newest(db, found, limit)
    head = snapshot(0, found, rows).head("rows")
    if since is not None and REVISION in found.columns:
        place = found.columns.index(REVISION)
        rows = [row for row in rows if (row[place] or 0) > since]
    return {**head, "rows": plain_rows(found, rows)}


def _watcher(feeds: Fed, name: str) -> Watcher:
    return feeds.named(name)


@router.get("/api/views/{name}/changes", tags=["views"], response_class=EventSourceResponse)
async def changes(
    watcher: Annotated[Watcher, Depends(_watcher)],
) -> AsyncIterator[ServerSentEvent]:
    """A view as server-sent events: its newest rows first, then each set of changes, in JSON."""
    async with contextlib.aclosing(watcher.messages()) as messages:
        async for text in messages:
            yield ServerSentEvent(raw_data=text)


@router.websocket("/ws/views/{name}")
async def socket(websocket: WebSocket, feeds: Fed, name: str) -> None:
    """A view over a WebSocket: its newest rows first, then each set of changes, in JSON."""
    await websocket.accept()
    try:
        watcher = await anyio.to_thread.run_sync(feeds.named, name)
    except HeadraceError as error:
        await websocket.send_json({"type": "error", "error": error.message, "hint": error.hint})
        await websocket.close(4404, "there is no such view")
        return
    with contextlib.suppress(WebSocketDisconnect):
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_send(websocket, watcher))
            # Nothing is expected from a reader but that it leaves.
            while (await websocket.receive())["type"] != "websocket.disconnect":
                pass
            sending.cancel()


async def _send(websocket: WebSocket, watcher: Watcher) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        async with contextlib.aclosing(watcher.messages()) as messages:
            async for text in messages:
                await websocket.send_text(text)
