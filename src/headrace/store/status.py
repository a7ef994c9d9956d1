"""The state of each store of a view, noted in a file by whoever follows it.

So anyone can see how far a store is without its address, its secrets or its client.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headrace.clock import SECOND
from headrace.errors import AlreadyRunning, HeadraceError
from headrace.files import write_note
from headrace.log import LATEST, Log, Offset
from headrace.log.home import folder_of
from headrace.store.changelog import topic_of
from headrace.store.contract import StorePosition
from headrace.store.location import app_folder
from headrace.store.lock import only_one

State = Literal["new", "building", "following", "failing", "stopped"]
"""The state of a store: filled, followed, not to be written to, or followed by nobody."""


@dataclass(frozen=True)
class StoreStatus:
    """The state of one store of a view. Times are microseconds since the epoch.

    `lag` is the number of changes that are not applied, None if that is unknown, and `behind` how
    long ago the first of them was made. `error` is the last one since it has applied anything.
    """

    app: str
    view: str
    store: str
    state: State = "new"
    position: StorePosition | None = None
    lag: int | None = None
    behind: int | None = None
    applied: int = 0
    """Changes applied since the follower has begun."""
    last_batch: int | None = None
    last_rows: int = 0
    error: str = ""
    hint: str = ""
    retryable: bool = False
    built: str = ""
    """The reason for the last new version."""

    @property
    def name(self) -> str:
        """The file name of the status: readable, and another for each store."""
        words = re.sub(r"[^A-Za-z0-9.-]+", "-", self.store).strip("-")[:40]
        return f"{self.view}.{words}.{hashlib.sha256(self.store.encode()).hexdigest()[:8]}"


def notes_folder(url: str, app: str) -> Path:
    """The folder of the notes and locks of an application's stores."""
    return app_folder(url, app) / "stores"


def lock_of(url: str, status: StoreStatus) -> Path:
    """The lock that the follower of a store holds."""
    return notes_folder(url, status.app) / f"{status.name}.lock"


def note(url: str, status: StoreStatus) -> None:
    """Write down the state of a store."""
    kept = {**asdict(status), "lag": None, "behind": None}
    write_note(notes_folder(url, status.app) / f"{status.name}.json", json.dumps(kept))


def noted(url: str, status: StoreStatus) -> StoreStatus | None:
    """The state of a store as it was last noted, maybe by another process."""
    return _read(notes_folder(url, status.app) / f"{status.name}.json")


def forget_others(url: str, app: str, declared: Collection[StoreStatus]) -> None:
    """Remove the notes of stores that an application no longer declares and that nobody follows.

    What is in them stays: only who declared it knows whether it is still wanted.
    """
    kept = {status.name for status in declared}
    for path in notes_folder(url, app).glob("*.json"):
        status = _read(path)
        if status is None or status.name in kept:
            continue
        with (
            contextlib.suppress(AlreadyRunning),
            only_one(lock_of(url, status), "It is followed", ""),
        ):
            path.unlink(missing_ok=True)


def statuses(log: Log, now: int) -> list[StoreStatus]:
    """The state of every store of a log's views, with its lag as of now."""
    found = [_measured(log, status, now) for status in _noted(log.home)]
    return sorted(found, key=lambda s: (s.app, s.view, s.store))


def _noted(url: str) -> Iterator[StoreStatus]:
    for path in sorted((folder_of(url) / "apps").glob("*/stores/*.json")):
        if (status := _read(path)) is not None:
            yield status


def _read(path: Path) -> StoreStatus | None:
    with contextlib.suppress(ValueError, TypeError, KeyError, FileNotFoundError):
        data: dict[str, Any] = json.loads(path.read_text())
        place = data["position"]
        reached = StorePosition(**place) if place is not None else None
        return StoreStatus(**{**data, "position": reached})
    return None


def _measured(log: Log, status: StoreStatus, now: int) -> StoreStatus:
    topic = topic_of(status.app, status.view)
    if status.position is None or not log.topic_ids([topic]):
        return status
    state = log.topic(topic).partitions[0]
    offset = max(status.position.offset, state.first)
    return replace(
        status,
        lag=max(0, state.end - status.position.offset),
        behind=None if offset >= state.end else max(0, now - _made_at(log, topic, offset)),
    )


def _made_at(log: Log, topic: str, offset: int) -> int:
    """The time of the first record from an offset on."""
    end = log.offset_at(topic, 0, LATEST)
    with contextlib.suppress(StopIteration, HeadraceError):
        stop = Offset(min(offset + 1, end))
        batch = next(iter(log.read(topic, start=Offset(offset), stop=stop, columns=["op"])))
        return int(batch.timestamp)
    return 0


def seconds_behind(status: StoreStatus) -> float:
    """The age of the first change that a store does not show; 0 if it shows all."""
    return 0.0 if status.behind is None else status.behind / SECOND
