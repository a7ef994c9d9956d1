"""One server for all processes of a test run: the first starts it, and it ends with the last."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from headrace.servers.java import ports
from tests.servers import guard
from tests.servers.server import Server

S = TypeVar("S", bound=Server)


@contextlib.contextmanager
def shared(kind: type[S], base: Path) -> Iterator[S]:
    """The server of this test run, whose processes have a folder in common."""
    base.mkdir(parents=True, exist_ok=True)
    place = base / "place"
    with (base / "users").open("w") as using:
        with (base / "lock").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            # Not while the guard removes the server of others.
            fcntl.flock(using, fcntl.LOCK_SH)
            server = _joined(kind, place) or _started(kind, place, base / "users")
        yield server


def _joined(kind: type[S], place: Path) -> S | None:
    try:
        folder, port = place.read_text().split("\n")
    except FileNotFoundError:
        return None
    process = guard.running(Path(folder))
    return kind(Path(folder), int(port)) if process and process.alive() else None


def _started(kind: type[S], place: Path, users: Path) -> S:
    made = kind(kind.new_folder(), ports.free(1)[0])
    guard.watch(users, made.folder, kind.ending)
    made.create()
    made.start()
    place.write_text(f"{made.folder}\n{made.port}")
    return made
