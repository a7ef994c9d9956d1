"""A watcher of a view: its newest rows, again after each change, for any number of listeners.

It looks at the files of the database only while somebody listens. A listener gets the newest state
when it can take one: a slow one misses states in between, and nothing queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import apsw

from headrace.clock import SECOND, SystemClock, to_datetime
from headrace.errors import HeadraceError
from headrace.plan.metadata import REVISION
from headrace.store import Views
from headrace.studio.live.rows import Described, database, described, newest, opened

ROWS = 2_000
"""Rows of a feed: those of the latest windows, or those that changed last."""
BEAT = 0.02
"""Seconds between two looks at the files."""
_SHARE = 4
"""A watcher rests this many times as long as its last look took."""
_RETRY = 0.5
_REST = 0.1
"""Seconds between two drawings of a page."""

Row = tuple[Any, ...]
_Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The newest rows of a view at one moment, by key."""

    version: int
    view: Described
    rows: Mapping[Row, Row]
    mark: Row = ()
    """The record of its step, which each batch changes: with the same mark, rows are the same."""

    @property
    def revision(self) -> int:
        """The highest commit that the rows count."""
        if REVISION not in self.view.columns:
            return 0
        place = self.view.columns.index(REVISION)
        return max((row[place] or 0 for row in self.rows.values()), default=0)

    def head(self, kind: str) -> dict[str, Any]:
        mark = self.view.watermark
        return {
            "type": kind,
            "view": self.view.name,
            "app": self.view.app,
            "key": self.view.key,
            "revision": self.revision,
            "watermark": None if mark is None else to_datetime(mark).isoformat(),
        }

    def plain(self) -> dict[str, Any]:
        """The whole snapshot, as JSON has it."""
        return {**self.head("snapshot"), "rows": plain_rows(self.view, self.rows.values())}

    def since(self, before: Snapshot) -> dict[str, Any]:
        """Changes since another snapshot: rows, and keys of rows that left the feed."""
        changed = [row for key, row in self.rows.items() if before.rows.get(key) != row]
        gone = [
            dict(zip(before.view.key, map(_value, key), strict=True))
            for key in before.rows
            if key not in self.rows
        ]
        return {**self.head("changes"), "rows": plain_rows(self.view, changed), "removed": gone}


def snapshot(version: int, view: Described, rows: Iterable[Row], mark: Row = ()) -> Snapshot:
    """A snapshot of rows of a view."""
    places = [view.columns.index(column) for column in view.key]
    by_key = {tuple(row[place] for place in places): row for row in rows}
    return Snapshot(version, view, by_key, mark)


def plain_rows(view: Described, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    return [dict(zip(view.columns, map(_value, row), strict=True)) for row in rows]


class Watcher:
    """Follows one view while it has listeners."""

    def __init__(self, views: Views, app: str, view: str) -> None:
        self._views = views
        self._place = app, view
        self._path = database(views, app)
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._newest: Snapshot | None = None
        self._texts: tuple[int, dict[int | None, str]] = (0, {})
        """The texts to the newest version, by the version that a reader has."""
        self.listeners = 0
        self.looks = 0
        self.encoded = 0

    @property
    def watching(self) -> bool:
        """True while it looks at the files."""
        return self._task is not None

    async def snapshots(self) -> AsyncGenerator[Snapshot]:
        """The view now, and again after each change. A slow reader gets the newest only."""
        self.listeners += 1
        try:
            if self._newest is None or self._task is None:
                self._newest = await anyio.to_thread.run_sync(self._look)
            if self._task is None:
                self._task = asyncio.create_task(self._watch())
            sent = self._newest
            yield sent
            while True:
                changed = self._changed
                if self._newest.version != sent.version:
                    sent = self._newest
                    yield sent
                else:
                    await changed.wait()
        finally:
            self.listeners -= 1
            if not self.listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def changes(self) -> AsyncGenerator[None]:
        """The moments at which the view has changed, the first one at once."""
        async with contextlib.aclosing(self.snapshots()) as snapshots:
            async for _ in snapshots:
                yield
                await anyio.sleep(_REST)

    async def messages(self) -> AsyncGenerator[str]:
        """JSON: the snapshot, then change sets."""
        before: Snapshot | None = None
        async with contextlib.aclosing(self.snapshots()) as snapshots:
            async for found in snapshots:
                yield self._text(before, found)
                before = found

    def _text(self, before: Snapshot | None, found: Snapshot) -> str:
        """The text of a change. Readers that were sent the same before share it."""
        version, texts = self._texts
        if version != found.version:
            self._texts = version, texts = found.version, {}
        place = None if before is None else before.version
        if place not in texts:
            plain = found.plain() if before is None else found.since(before)
            texts[place] = json.dumps(plain)
            self.encoded += 1
        return texts[place]

    async def _watch(self) -> None:
        seen: _Signature = ()
        again, clock = True, SystemClock()
        while True:
            now = _signature(self._path)
            if now == seen and not again:
                await anyio.sleep(BEAT)
                continue
            # Files have a coarse clock: a second commit within one tick shows in the next look.
            again, seen = now != seen, now
            begun = clock.monotonic()
            try:
                found = await anyio.to_thread.run_sync(self._look)
            except HeadraceError:
                # It is being replaced, or it is gone: listeners keep what they have.
                again = True
                await anyio.sleep(_RETRY)
                continue
            before = self._newest
            same = before is not None and (before.rows, before.view) == (found.rows, found.view)
            if same:
                assert before is not None
                self._newest = replace(found, version=before.version)
            else:
                self._newest = found
                self._changed.set()
                self._changed = asyncio.Event()
            took = (clock.monotonic() - begun) / SECOND
            await anyio.sleep(max(BEAT, _SHARE * took))

    def _look(self) -> Snapshot:
        """The view now: the snapshot that there is, if no batch was stored since."""
        app, name = self._place
        before = self._newest
        with opened(self._views, app) as db:
            view = described(db, app, name)
            mark = _mark(db, view)
            if before is not None and (before.view, before.mark) == (view, mark):
                return before
            self.looks += 1
            return snapshot(self.looks, view, newest(db, view, ROWS), mark)


def _mark(db: apsw.Connection, view: Described) -> Row:
    """The record of a view's step."""
    return tuple(db.execute("SELECT * FROM _headrace_step WHERE name = ?", (view.step,)).get)


def _signature(path: Path) -> _Signature:
    return tuple(_stat(f"{path}{end}") for end in ("", "-wal"))


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _value(value: Any) -> Any:
    """A value as JSON has it: bytes as text, and floats that JSON lacks as null."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value - value != 0:
        return None
    return value
