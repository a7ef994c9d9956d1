"""A server of a test run: its folder, its port, and its life."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn, Self

import pytest

from headrace.clock import SECOND, SystemClock
from headrace.servers.java import ports
from headrace.servers.java.process import Process, start, started_at
from tests.servers import guard, packages
from tests.waiting import wait_until

REQUIRED = "HEADRACE_SERVICES"
"""The variable that makes a missing server an error, if it is `required`, and no reason to skip."""

_UNPRIVILEGED = Path(__file__).with_name("unprivileged.py")


class Server(ABC):
    """A server on loopback. It runs as an unprivileged user if the tests run as root."""

    name: ClassVar[str]
    users: ClassVar[tuple[str, ...]]
    """Users that it may run as, before `nobody`."""
    ending: ClassVar[signal.Signals]
    """The signal that stops it at once."""

    def __init__(self, folder: Path, port: int, *settings: str) -> None:
        self.folder = folder
        self.port = port
        self.settings = settings
        found = packages.find(self.name)
        if found is None:
            unavailable(packages.missing(self.name))
        self.program = found

    @classmethod
    @contextlib.contextmanager
    def running(cls, *settings: str) -> Iterator[Self]:
        """A server for this test alone, with settings of its own."""
        made = cls(cls.new_folder(), ports.free(1)[0], *settings)
        with (made.folder / "users").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            guard.watch(made.folder / "users", made.folder, cls.ending)
            made.create()
            made.start()
            try:
                yield made
            finally:
                made.stop()

    @classmethod
    def new_folder(cls) -> Path:
        """An empty folder that the server's user can write to."""
        folder = Path(tempfile.mkdtemp(prefix=f"headrace-{cls.name}-"))
        if (user := cls.user()) is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder

    @classmethod
    def user(cls) -> pwd.struct_passwd | None:
        """The user it runs as; None for the one who runs the tests."""
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        return next(known[name] for name in (*cls.users, "nobody") if name in known)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @abstractmethod
    def create(self) -> None:
        """Make its data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs it in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """True if it serves clients."""

    def start(self) -> None:
        """Start it, and return when it serves clients."""
        ports.require(self.port)
        process = start(self._as_user(self.command()), self.log, self.program.environment())
        (self.folder / guard.PROCESS).write_text(f"{process.pid} {process.started}")

        def ready() -> bool:
            if not process.alive():
                said = self.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{self.name} ended while it started, and said:\n{said}")
            return self.answers()

        wait_until(ready)

    def kill(self) -> None:
        """Kill it with its children as the kernel does, and return when they are gone."""
        if (process := guard.running(self.folder)) is not None:
            processes = [process, *_children(process)]
            for one in processes:
                one.signal(signal.SIGKILL)
            wait_until(lambda: not any(one.alive() for one in processes))

    def stop(self) -> None:
        """Stop it, and return when it has ended."""
        if (process := guard.running(self.folder)) is not None:
            process.signal(self.ending)
            process.end(SystemClock(), 20 * SECOND)

    def run(self, command: Sequence[str], given: str = "") -> None:
        """Run one of its own programs to its end."""
        done = subprocess.run(
            self._as_user(command),
            input=given,
            env=self.program.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _as_user(self, command: Sequence[str]) -> list[str]:
        if (user := self.user()) is None:
            return list(command)
        ids = [str(user.pw_uid), str(user.pw_gid)]
        return [sys.executable, "-IS", str(_UNPRIVILEGED), *ids, *command]


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where servers are required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, but {reason}", pytrace=False)
    pytest.skip(reason)


def _children(process: Process) -> list[Process]:
    """The children of a process, where the system tells."""
    with contextlib.suppress(OSError):
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        return [Process(int(pid), started_at(int(pid))) for pid in listed.split()]
    return []
