"""Locks between processes: a file each, released when its holder ends, even by a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import IO

from headrace.errors import AlreadyRunning
from headrace.forks import in_child

Wait = Callable[[], None]
"""Called repeatedly while another process holds the lock; it sleeps a little."""


@contextlib.contextmanager
def only_run(folder: Path, app: str, *, hint: str = "", wait: Wait | None = None) -> Iterator[None]:
    """Hold the lock of an application's run; with `wait`, once it is free."""
    hint = hint or "Two runs would do the same work twice; stop the other one first"
    with only_one(folder / "run.lock", f"Application {app!r} is running already", hint, wait):
        yield


@contextlib.contextmanager
def only_one(path: Path, refusal: str, hint: str, wait: Wait | None = None) -> Iterator[None]:
    """Hold a lock, or raise with this message and the id of the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        # A child would hold the lock for as long as it lives.
        in_child(file, methodcaller("close"))
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if wait is None:
                    raise AlreadyRunning(f"{refusal}{_holder(file)}", hint=hint) from None
                wait()
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _holder(file: IO[str]) -> str:
    file.seek(0)
    pid = file.read().strip()
    return f", as process {pid}" if pid else ""
