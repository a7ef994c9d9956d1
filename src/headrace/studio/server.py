"""The web server of the studio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import htpy as h
import uvicorn
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from headrace.errors import (
    HeadraceError,
    PortTaken,
    UnknownGroup,
    UnknownPage,
    UnknownQueue,
    UnknownTopic,
    UnknownView,
    UserError,
)
from headrace.studio.api import router as api
from headrace.studio.docs import router as docs
from headrace.studio.guard import Guard
from headrace.studio.learn.own_data_page import router as own_data
from headrace.studio.learn.routes import router as learn
from headrace.studio.live.crashing import Crashes
from headrace.studio.live.dashboard import router as dashboard
from headrace.studio.live.domains import router as domains
from headrace.studio.live.feed import router as feeds
from headrace.studio.live.groups import router as groups
from headrace.studio.live.handles import Handles
from headrace.studio.live.ingest import router as ingest
from headrace.studio.live.messages import router as messages
from headrace.studio.live.metrics import router as metrics
from headrace.studio.live.overview import router as overview
from headrace.studio.live.pipeline_states import Watch
from headrace.studio.live.pipelines import router as pipelines
from headrace.studio.live.processes import Processes
from headrace.studio.live.producing import router as producing
from headrace.studio.live.queues import router as queues
from headrace.studio.live.rebuilding import router as rebuilding
from headrace.studio.live.sources import router as sources
from headrace.studio.live.stores import router as stores
from headrace.studio.live.topics import router as topics
from headrace.studio.live.verified import router as verified
from headrace.studio.live.view_row import router as view_row
from headrace.studio.live.views import router as views
from headrace.studio.pages import failure, fragment, page
from headrace.studio.settings import StudioSettings

ROUTERS = (
    api,
    overview,
    dashboard,
    pipelines,
    rebuilding,
    topics,
    messages,
    producing,
    ingest,
    groups,
    queues,
    domains,
    sources,
    stores,
    verified,
    feeds,
    views,
    view_row,
    own_data,
    learn,
    docs,
    metrics,
)
"""The pages, by the part of the studio that has them."""

NOT_THERE = (UnknownPage, UnknownTopic, UnknownGroup, UnknownQueue, UnknownView)
"""Errors whose answer has the status 404."""

STATIC = Path(str(resources.files("headrace.studio") / "static"))


def studio(settings: StudioSettings) -> FastAPI:
    """The web application of a studio."""
    handles, processes = Handles(settings), Processes(settings)
    watch = Watch(handles, processes)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with handles, processes, watch:
            yield

    app = FastAPI(
        title="headrace studio",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        middleware=[Middleware(Guard, settings=settings)],
    )
    app.state.settings = settings
    app.state.handles = handles
    app.state.watch = watch
    app.state.crashes = Crashes(handles, processes)
    app.mount("/static", StaticFiles(directory=STATIC))
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(HeadraceError, _failed)
    app.add_exception_handler(HTTPException, _missing)
    return app


def serve(
    settings: StudioSettings, *, started: Callable[[str], None], browser: bool = False
) -> None:
    """Serve a studio until Ctrl-C. `started` gets its address, token included."""
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        server = uvicorn.Server(config_of(settings, "warning"))
        started(settings.address)
        if browser:
            webbrowser.open(settings.address)
        server.run(sockets=[listener])


@contextlib.contextmanager
def in_background(settings: StudioSettings) -> Iterator[str]:
    """Serve a studio from a thread, for a `with` block, which gets its address."""
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        # The terminal is somebody else's.
        server = uvicorn.Server(config_of(settings, "critical"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield settings.address
        finally:
            server.should_exit = True
            thread.join(10)


def config_of(settings: StudioSettings, log_level: str) -> uvicorn.Config:
    """The configuration of a studio's web server."""
    return uvicorn.Config(
        studio(settings),
        log_level=log_level,
        access_log=False,  # it would hold tokens
        lifespan="on",
        timeout_graceful_shutdown=1,  # live pages never end by themselves
        ws_max_size=1 << 20,
        # Compressing each change for each reader costs more than all the rest of a feed.
        ws_per_message_deflate=False,
    )


def _is_news(record: logging.LogRecord) -> bool:
    """False for live pages that end with the studio: that is no error."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "graceful" not in record.msg


def listening(settings: StudioSettings) -> socket.socket:
    """A socket that listens where the settings say."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"The studio cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            hint="Choose another port, or 0 for a free one: --port 0",
        ) from error
    listener.listen()
    return listener


def _failed(request: Request, error: Exception) -> Response:
    """A mistake of the user is an answer in words, wherever it was made."""
    assert isinstance(error, HeadraceError)
    status = 400 if isinstance(error, UserError) else 503
    # A form that names what is not there is wrong itself.
    by_path = request.method == "GET" or request.url.path.startswith("/api/")
    if by_path and isinstance(error, NOT_THERE):
        status = 404
    return _answered(request, status, error.message, error.hint)


def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _answered(request, 404, "There is no such page", "See the navigation above")
    return _answered(request, error.status_code, str(error.detail), None)


def _answered(request: Request, status: int, message: str, hint: str | None) -> Response:
    if request.url.path.startswith(("/api/", "/metrics", "/healthz")):
        return JSONResponse({"error": message, "hint": hint}, status_code=status)
    if request.headers.get("hx-request"):
        answer: HTMLResponse = fragment(failure(message, hint))
        answer.status_code = status
        return answer
    content = failure(message, hint), h.p[h.a(href="/")["Overview"]]
    return page(request, "That did not work", *content, status=status)
