"""Views as feeds: a snapshot, then changes, over one watcher for all readers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from websockets.sync.client import connect

from headrace.store import open_views
from headrace.studio.guard import COOKIE
from headrace.studio.live import watching
from headrace.studio.live.rows import database
from headrace.studio.live.watching import Watcher
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings
from tests.studio.serving import serving
from tests.studio.viewed import hit, pageviews, write
from tests.waiting import left

TOKEN = {"authorization": "Bearer t"}
BEARER = dict(TOKEN)  # the test client adds headers of its own
APP, TOPIC = pageviews()
HOST = "ws://127.0.0.1:8787"
FEED = f"{HOST}/ws/views/hits_per_minute"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, APP, TOPIC, [hit("/a", 1), hit("/b", 2)])
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    settings = StudioSettings(log=f"file:{folder}", token="t")
    with TestClient(studio(settings), base_url=settings.origin) as client:
        yield client


def hits(message: dict[str, Any]) -> dict[str, int]:
    return {row["url"]: row["hits"] for row in message["rows"]}


def test_a_reader_gets_the_rows_and_then_what_changes(client: TestClient, folder: Path) -> None:
    with client.websocket_connect(FEED, headers=BEARER) as feed:
        first = feed.receive_json()
        assert (first["type"], hits(first)) == ("snapshot", {"/a": 1, "/b": 1})
        assert (first["key"], first["revision"]) == (["url", "window_start"], 1)
        write(folder, APP, TOPIC, [hit("/a", 3)])
        then = feed.receive_json()
        assert (then["type"], hits(then), then["removed"]) == ("changes", {"/a": 2}, [])
        assert then["revision"] > first["revision"]


def test_a_window_that_fires_is_a_change(client: TestClient, folder: Path) -> None:
    with client.websocket_connect(FEED, headers=BEARER) as feed:
        assert {row["_state"] for row in feed.receive_json()["rows"]} == {"open"}
        write(folder, APP, TOPIC, [hit("/c", 75)])
        then = feed.receive_json()
        states = {row["url"]: row["_state"] for row in then["rows"]}
        assert states == {"/a": "fired", "/b": "fired", "/c": "open"}


def test_rows_of_a_window_that_is_corrected_are_a_change(client: TestClient, folder: Path) -> None:
    with client.websocket_connect(FEED, headers=BEARER) as feed:
        feed.receive_json()
        write(folder, APP, TOPIC, [hit("/a", 0)])  # no newer than what there is
        assert hits(feed.receive_json()) == {"/a": 2}


def test_a_row_that_leaves_the_feed_is_named(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "ROWS", 2)
    with client.websocket_connect(FEED, headers=BEARER) as feed:
        assert hits(feed.receive_json()) == {"/a": 1, "/b": 1}
        write(folder, APP, TOPIC, [hit("/c", 75)])
        then = feed.receive_json()
        assert then["removed"] == [{"url": "/b", "window_start": "2026-03-01 12:00:00"}]


def test_readers_share_a_watcher_that_rests_without_them(client: TestClient, folder: Path) -> None:
    with client.websocket_connect(FEED, headers=BEARER) as one:
        one.receive_json()
        with client.websocket_connect(
            f"{HOST}/ws/views/pageviews.hits_per_minute", headers=BEARER
        ) as two:
            two.receive_json()
            (watcher,) = client.app.state.feeds.watchers.values()  # type: ignore[attr-defined]
            assert (watcher.listeners, watcher.watching) == (2, True)
            write(folder, APP, TOPIC, [hit("/a", 3)])
            assert one.receive_json() == two.receive_json()
    assert (watcher.listeners, watcher.watching) == (0, False)


def test_readers_of_a_feed_are_not_sent_compressed_frames(folder: Path) -> None:
    with serving(StudioSettings(log=f"file:{folder}", token="t")) as settings:
        address = settings.origin.replace("http", "ws") + "/ws/views/hits_per_minute"
        with connect(address, additional_headers=TOKEN, max_size=None) as feed:
            assert feed.protocol.extensions == []


def test_a_look_without_a_new_batch_reads_no_rows(folder: Path) -> None:
    with open_views(f"file:{folder}") as views:
        watcher = Watcher(views, "pageviews", "hits_per_minute")

        async def look() -> None:
            async with contextlib.aclosing(watcher.snapshots()) as found:
                await anext(found)
                # Another process touches the file, as the outbox does after each batch.
                os.utime(database(views, "pageviews"))
                await anyio.sleep(0)

        with ThreadPoolExecutor(1) as thread:
            for _ in range(2):
                thread.submit(asyncio.run, look()).result()
        assert watcher.looks == 1


def test_slow_readers_at_the_same_place_share_one_text(folder: Path) -> None:
    async def read() -> tuple[int, set[str]]:
        with open_views(f"file:{folder}") as views:
            watcher = Watcher(views, "pageviews", "hits_per_minute")
            async with contextlib.AsyncExitStack() as stack:
                readers = [
                    await stack.enter_async_context(contextlib.aclosing(watcher.messages()))
                    for _ in range(5)
                ]
                for reader in readers:
                    await anext(reader)
                fast, slow = readers[0], readers[1:]
                for second in (3, 4):
                    await anyio.to_thread.run_sync(write, folder, APP, TOPIC, [hit("/a", second)])
                    while hits(json.loads(await anext(fast))).get("/a") != second - 1:
                        pass
                before = watcher.encoded
                texts = {await anext(reader) for reader in slow}
                return watcher.encoded - before, texts

    with ThreadPoolExecutor(1) as thread:
        encoded, texts = thread.submit(asyncio.run, read()).result()
    assert (encoded, len(texts)) == (1, 1)


def test_a_slow_reader_gets_the_newest_and_nothing_queues(folder: Path) -> None:
    async def read() -> tuple[list[dict[str, Any]], int]:
        with open_views(f"file:{folder}") as views:
            watcher = Watcher(views, "pageviews", "hits_per_minute")
            async with (
                contextlib.aclosing(watcher.messages()) as fast,
                contextlib.aclosing(watcher.messages()) as slow,
            ):
                await anext(fast)
                await anext(slow)
                seen = 0
                for second in (3, 4, 5):
                    await anyio.to_thread.run_sync(write, folder, APP, TOPIC, [hit("/a", second)])
                    while hits(json.loads(await anext(fast))).get("/a") != second - 1:
                        pass
                    seen += 1
                return [json.loads(await anext(slow))], seen

    # In this thread, the browser of other tests may have an event loop.
    with ThreadPoolExecutor(1) as thread:
        (only,), seen = thread.submit(asyncio.run, read()).result()
    assert (seen, hits(only)) == (3, {"/a": 4})


# Who may read


def test_a_feed_takes_the_token_of_a_cookie(client: TestClient) -> None:
    client.cookies.set(COOKIE, "t")
    with client.websocket_connect(FEED, headers={"origin": "http://127.0.0.1:8787"}) as feed:
        assert feed.receive_json()["type"] == "snapshot"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"cookie": f"{COOKIE}=wrong"},
        {**BEARER, "origin": "http://evil.example"},
        {**BEARER, "origin": "null"},
        {**BEARER, "host": "evil.example:8787"},
    ],
)
def test_a_feed_is_refused_to_others(client: TestClient, headers: dict[str, str]) -> None:
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect(FEED, headers=headers) as feed,
    ):
        feed.receive_json()
    assert refused.value.code == 4403
    assert not hasattr(client.app.state, "feeds")  # type: ignore[attr-defined]


def test_a_view_that_is_not_there_is_said_and_leaves_nothing(client: TestClient) -> None:
    with client.websocket_connect(f"{HOST}/ws/views/nothing", headers=BEARER) as feed:
        assert "There is no view 'nothing'" in feed.receive_json()["error"]
        with pytest.raises(WebSocketDisconnect):
            feed.receive_json()
    assert client.app.state.feeds.watchers == {}  # type: ignore[attr-defined]
    for path in ("/api/views/nothing", "/api/views/nothing/changes"):
        answer = client.get(path, headers=BEARER)
        assert (answer.status_code, "hits_per_minute" in answer.json()["hint"]) == (404, True)


# HTTP


def test_rows_over_http_are_those_of_the_view(client: TestClient, folder: Path) -> None:
    (view,) = client.get("/api/views", headers=BEARER).json()
    assert (view["name"], view["app"], view["rows"]) == ("hits_per_minute", "pageviews", 2)
    found = client.get("/api/views/hits_per_minute?limit=10", headers=BEARER).json()
    with open_views(f"file:{folder}") as views:
        assert found["rows"] == views.newest("hits_per_minute").dicts()
    assert (
        client.get("/api/views/hits_per_minute?limit=1", headers=BEARER).json()["rows"]
        == (found["rows"][:1])
    )


def test_rows_since_a_revision_are_those_that_changed_later(
    client: TestClient, folder: Path
) -> None:
    path = "/api/views/hits_per_minute?since="
    first = client.get(f"{path}0", headers=BEARER).json()
    assert hits(first) == {"/a": 1, "/b": 1}
    assert client.get(f"{path}{first['revision']}", headers=BEARER).json()["rows"] == []
    write(folder, APP, TOPIC, [hit("/b", 9)])
    later = client.get(f"{path}{first['revision']}", headers=BEARER).json()
    assert hits(later) == {"/b": 2}


def test_changes_are_server_sent_events(folder: Path) -> None:
    with serving(StudioSettings(log=f"file:{folder}", token="t")) as settings:
        path = f"{settings.origin}/api/views/hits_per_minute/changes"
        with httpx.stream("GET", path, headers=BEARER, timeout=left()) as answer:
            lines = (json.loads(line[6:]) for line in answer.iter_lines() if line[:6] == "data: ")
            assert hits(next(lines)) == {"/a": 1, "/b": 1}
            write(folder, APP, TOPIC, [hit("/a", 3)])
            assert hits(next(lines)) == {"/a": 2}
