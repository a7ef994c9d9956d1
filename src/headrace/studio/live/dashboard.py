"""The dashboard: the top ten of the newest window, live, with the pipeline that counts them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import anyio.to_thread
import htpy as h
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

import headrace
from headrace.errors import HeadraceError
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.studio.live.cells import STATES, moment, path_of, text_of
from headrace.studio.live.charts import Bar, per_window, ranking
from headrace.studio.live.feed import Fed
from headrace.studio.live.following import following
from headrace.studio.live.handles import Handles, Opened
from headrace.studio.live.rows import (
    STATE,
    Described,
    Window,
    described,
    largest,
    opened,
    windows,
)
from headrace.studio.pages import badge, failure, live, page, section

PLACES = 10
_LINES = 40

router = APIRouter()


@dataclass(frozen=True)
class Board:
    """A view on the dashboard: what it shows, and the file of its pipeline if it is known."""

    app: str
    view: str
    title: str
    file: str | None = None


_KNOWN = (
    Board("pageviews", "hits_per_minute", "Page views per minute", "pageviews.py"),
    Board("trending", "trending_tumbling", "Trending hashtags", "trending.py"),
    Board("trending", "trending_hopping", "Trending hashtags", "trending.py"),
)


@router.get("/dashboard", include_in_schema=False)
def dashboard(request: Request, handles: Opened) -> HTMLResponse:
    """The newest window of the demo's views, or of the first windowed view that there is."""
    boards = boards_of(handles)
    if not boards:
        return page(
            request,
            "Dashboard",
            h.p(".lead")["The top ten of the newest window, as they change."],
            h.p(".empty")[
                "There is no view of windows yet. Run ",
                h.code["headrace demo"],
                " or a pipeline of your own: ",
                h.code["headrace run MODULE:APP"],
            ],
        )
    return page(
        request,
        "Dashboard",
        h.p(".lead")["The top ten of the newest window. The page follows each commit."],
        [_group(handles, list(some)) for _, some in groupby(boards, lambda board: board.app)],
        wide=True,
    )


@router.get(
    "/dashboard/{app}/{view}/live", include_in_schema=False, response_class=EventSourceResponse
)
async def board_live(
    request: Request, handles: Opened, feeds: Fed, app: str, view: str
) -> AsyncIterator[ServerSentEvent]:
    """The ranking of a view, again after each change."""
    watcher = await anyio.to_thread.run_sync(feeds.of, app, view)
    render = partial(_now, handles, app, view)
    async for event in following(request, render, changes=watcher.changes):
        yield event


def boards_of(handles: Handles) -> list[Board]:
    """The views of the demos that are there; if none is, the first windowed view with numbers."""
    found: list[Board] = []
    others: list[Board] = []
    known = {(board.app, board.view): board for board in _KNOWN}
    for app in handles.views.apps():
        with opened(handles.views, app) as db:
            names = [str(name) for (name,) in db.execute("SELECT name FROM _headrace_view")]
            for name in sorted(names):
                view = described(db, app, name)
                if not (view.windowed and view.numbers):
                    continue
                if (app, name) in known:
                    found.append(known[app, name])
                else:
                    others.append(Board(app, name, name))
    order = list(_KNOWN)
    return sorted(found, key=order.index) or others[:1]


def _group(handles: Handles, boards: list[Board]) -> Element:
    """The views of one application, beside its source."""
    source = _source(handles, boards[0])
    return section(
        boards[0].title,
        h.div(".board")[
            h.div(".boards")[(_board(handles, board) for board in boards)],
            source is not None
            and h.figure(".panel.source")[
                h.figcaption["The pipeline that counts this"],
                h.pre(tabindex="0", role="region", aria_label=f"Source of {boards[0].app}")[
                    h.code[source]
                ],
            ],
        ],
    )


def _board(handles: Handles, board: Board) -> Element:
    path = f"/dashboard{path_of(board.app, board.view).removeprefix('/views')}/live"
    return live(path, _now(handles, board.app, board.view), id=f"{board.app}-{board.view}")


def _now(handles: Handles, app: str, view: str) -> Node:
    try:
        with opened(handles.views, app) as db:
            found = described(db, app, view)
            column = found.numbers[0]
            sums = windows(db, found, column)
            current = _current(found, sums)
            rows = largest(db, found, column, current, PLACES) if current is not None else []
    except HeadraceError as error:
        return failure(error.message, error.hint)
    state = str(rows[0].get(STATE, "open")) if rows else ""
    span = "no window yet" if current is None else _span(current.start, current.end)
    names = labels_of(found)
    bars = [
        Bar(" · ".join(text_of(row[name]) for name in names) or "all", float(row[column] or 0))
        for row in rows
    ]
    return [
        h.figure(".panel")[
            h.figcaption[
                h.a(href=path_of(app, view))[view], " ", state and badge(state, STATES[state])
            ],
            h.p(".ends.hint")[h.span[f"{column} by {', '.join(names)}"], h.span[span]],
            ranking(bars, PLACES, f"Top {PLACES} by {column}"),
            h.p(".hint")[f"Watermark {moment(found.watermark)}"],
        ],
        per_window(sums, column, current),
    ]


def _current(view: Described, found: list[Window]) -> Window | None:
    """The window that ends next: of windows that overlap, the one that has counted longest."""
    if not found or view.frontier is None:
        return found[-1] if found else None
    now = moment(view.frontier)
    return min((w for w in found if w.end > now), key=lambda w: w.end, default=found[-1])


def labels_of(view: Described) -> list[str]:
    """The columns that name a row within its window: its key, or beside a rank all others."""
    inside = (WINDOW_START, WINDOW_END)
    key = [name for name in view.key if name not in inside and name != "rank"]
    return key or [
        name
        for name in view.columns
        if name not in (*inside, *view.numbers, "rank") and not name.startswith("_")
    ]


def _source(handles: Handles, board: Board) -> str | None:
    """The statements of a pipeline's file, without its docstring."""
    declared = handles.settings.declared.get(board.app)
    path: Path | None = None
    if declared is not None and board.view in declared.views:
        path = Path(declared.views[board.view].where.file)
    elif board.file is not None:
        path = pipeline_file(board.file)
    if path is None or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    _, mark, rest = text.partition('"""\n\n') if text.startswith('"""') else ("", "", text)
    lines = (rest if mark else text).strip().splitlines()
    return "\n".join([*lines[:_LINES], "..."] if len(lines) > _LINES else lines)


def pipeline_file(name: str) -> Path:
    """A reference pipeline: in the installed package, else beside src/."""
    package = Path(headrace.__file__).resolve().parent
    installed = package / "pipelines" / name
    return installed if installed.exists() else package.parents[1] / "pipelines" / name


def _span(start: str, end: str) -> str:
    """A window in short: its day once, and no seconds if there are none."""
    day, _, first = start.partition(" ")
    same, _, last = end.partition(" ")
    if first.endswith(":00") and last.endswith(":00"):
        first, last = first[:-3], last[:-3]
    return f"{day} {first} – {last}" if day == same else f"{start} – {end}"
