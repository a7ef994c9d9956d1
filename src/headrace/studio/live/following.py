"""Parts of pages that follow what they show: sent when they change, never in a queue.

A slow browser misses states in between, and gets the newest when it can take one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
import anyio.to_thread
from fastapi.sse import ServerSentEvent
from htpy import Node, fragment

from headrace.errors import HeadraceError
from headrace.studio.pages import failure

EVERY = 0.25
"""Seconds between two looks."""


async def following(
    render: Callable[[], Node], *, every: float = EVERY
) -> AsyncIterator[ServerSentEvent]:
    """A part of a page as server-sent events: at once, and again whenever it has changed.

    A route yields them, with `response_class=EventSourceResponse`.
    """
    before = None
    while True:
        text = await anyio.to_thread.run_sync(_rendered, render)
        if text != before:
            yield ServerSentEvent(raw_data=text)
            before = text
        await anyio.sleep(every)


def _rendered(render: Callable[[], Node]) -> str:
    try:
        return str(fragment[render()])
    except HeadraceError as error:
        return str(failure(error.message, error.hint))
