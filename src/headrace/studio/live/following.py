"""Parts of pages that follow what they show: rendered once for all browsers, never in a queue.

Browsers that show the same part share one renderer, which rests without them. A slow browser misses
states in between, and gets the newest when it can take one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import anyio
import anyio.to_thread
from fastapi import Request
from fastapi.sse import ServerSentEvent
from htpy import Node, fragment

from headrace.errors import HeadraceError
from headrace.studio.pages import failure

EVERY = 0.25
"""Seconds between two looks."""

Render = Callable[[], Node]
Changes = Callable[[], AsyncGenerator[object]]


class Part:
    """A part of a page, rendered after each change while somebody follows it."""

    def __init__(self, render: Render, changes: Changes) -> None:
        self._render = render
        self._changes = changes
        self._text: str | None = None
        self._error: Exception | None = None
        self._told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listeners = 0
        self.rendered = 0

    async def texts(self) -> AsyncGenerator[str]:
        """The part as it is now, and again whenever it has changed."""
        self.listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        sent: str | None = None
        try:
            while True:
                told = self._told
                if self._error is not None:
                    raise self._error
                if self._text is not None and self._text != sent:
                    sent = self._text
                    yield sent
                else:
                    await told.wait()
        finally:
            self.listeners -= 1
            if not self.listeners:
                self._task.cancel()
                self._task = None

    async def _follow(self) -> None:
        try:
            async with contextlib.aclosing(self._changes()) as changes:
                async for _ in changes:
                    text = await anyio.to_thread.run_sync(_rendered, self._render)
                    self.rendered += 1
                    if text != self._text:
                        self._text = text
                        self._tell()
        except Exception as error:
            # Each of those that follow it raises this, so that nobody waits for nothing.
            self._error = error
            self._tell()

    def _tell(self) -> None:
        self._told.set()
        self._told = asyncio.Event()


async def following(
    request: Request,
    render: Render,
    *,
    every: float = EVERY,
    changes: Changes | None = None,
) -> AsyncGenerator[ServerSentEvent]:
    """A part of a page as server-sent events: at once, and again whenever it has changed.

    It is looked at after each of `changes`, or else so often. Requests with the same address share
    it. A route yields the events, with `response_class=EventSourceResponse`.
    """
    parts = _parts(request)
    address = f"{request.url.path}?{request.url.query}"
    part = parts.get(address)
    if part is None:
        part = parts[address] = Part(render, changes or (lambda: _ticks(every)))
    try:
        async with contextlib.aclosing(part.texts()) as texts:
            async for text in texts:
                yield ServerSentEvent(raw_data=text)
    finally:
        if not part.listeners and parts.get(address) is part:
            del parts[address]


def _parts(request: Request) -> dict[str, Part]:
    """The parts that somebody follows, by their address."""
    state = request.app.state
    if not hasattr(state, "parts"):
        state.parts = {}
    found: dict[str, Part] = state.parts
    return found


async def _ticks(every: float) -> AsyncGenerator[None]:
    while True:
        yield
        await anyio.sleep(every)


def _rendered(render: Render) -> str:
    try:
        return str(fragment[render()])
    except HeadraceError as error:
        return str(failure(error.message, error.hint))
