"""Live parts of pages: rendered once for all browsers that follow them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from fastapi import FastAPI, Request

from headrace.studio.live.following import Part, following

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """Run in a thread: in this one, the browser of other tests may have an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Ticks:
    """Changes that a test makes."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self) -> AsyncGenerator[None]:
        yield
        while True:
            await self.queue.get()
            yield


def test_two_browsers_cost_one_rendering_and_none_once_they_have_left() -> None:
    async def work() -> tuple[list[str], int, int]:
        ticks, shown = Ticks(), iter(["one", "two"])
        part = Part(lambda: next(shown), ticks)
        texts = []
        async with (
            contextlib.aclosing(part.texts()) as first,
            contextlib.aclosing(part.texts()) as second,
        ):
            texts += [await anext(first), await anext(second)]
            ticks.queue.put_nowait(None)
            texts += [await anext(first), await anext(second)]
        return texts, part.rendered, part.listeners

    assert run(work()) == (["one", "one", "two", "two"], 2, 0)


def test_browsers_at_one_address_share_its_part() -> None:
    async def work() -> list[int]:
        app = FastAPI()
        scope = {"type": "http", "path": "/live", "query_string": b"q=1", "headers": [], "app": app}
        events = [following(Request(scope), lambda: "text") for _ in range(2)]
        for each in events:
            await anext(each)
        shared = [part.listeners for part in app.state.parts.values()]
        for each in events:
            await each.aclose()
        return [*shared, len(app.state.parts)]

    assert run(work()) == [2, 0]


def test_a_part_rests_once_its_browsers_have_left() -> None:
    async def work() -> int:
        ticks = Ticks()
        part = Part(lambda: "text", ticks)
        async with contextlib.aclosing(part.texts()) as texts:
            await anext(texts)
        await asyncio.sleep(0)
        ticks.queue.put_nowait(None)
        for _ in range(10):
            await asyncio.sleep(0.01)
        return part.rendered

    assert run(work()) == 1


def test_a_slow_browser_gets_the_newest_state_and_nothing_queues() -> None:
    async def work() -> list[str]:
        ticks, shown = Ticks(), iter(["one", "two", "three"])
        part = Part(lambda: next(shown), ticks)
        async with (
            contextlib.aclosing(part.texts()) as fast,
            contextlib.aclosing(part.texts()) as slow,
        ):
            await anext(fast)
            await anext(slow)
            for _ in range(2):
                ticks.queue.put_nowait(None)
                await anext(fast)
            return [await anext(slow)]

    assert run(work()) == ["three"]


def test_a_part_that_cannot_be_rendered_fails_for_all_that_follow_it() -> None:
    async def work() -> str:
        part = Part(lambda: str(1 // 0), Ticks())
        async with contextlib.aclosing(part.texts()) as texts:
            return await anext(texts)

    with pytest.raises(ZeroDivisionError):
        run(work())
