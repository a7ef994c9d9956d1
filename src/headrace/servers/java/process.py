"""Processes that outlive the one that started them, and are never mistaken for another."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.clock import MILLISECOND, SECOND, Clock

_POLL = 50 * MILLISECOND


@dataclass(frozen=True)
class Process:
    """A process by its id and by when it started, since ids are used again."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether it still runs. One that ended has ended, even if nobody has waited for it."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return started_at(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send a signal; to a process that has ended, none is sent."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to it and to the processes it started, of which some may be left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, clock: Clock, within: int) -> None:
        """Return when it has ended: by itself after it was asked to, else killed."""
        self.signal(signal.SIGTERM)
        if not self._gone(clock, within):
            self.signal(signal.SIGKILL)
            self._gone(clock, 10 * SECOND)

    def _gone(self, clock: Clock, within: int) -> bool:
        until = clock.monotonic() + within
        while alive := self.alive():
            if clock.monotonic() > until:
                break
            clock.sleep(_POLL)
        return not alive


def start(
    command: list[str], output: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a command in a session of its own, which neither Ctrl-C nor a closed terminal ends."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        command,
        environment or os.environ,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    return Process(pid, started_at(pid))


def started_at(pid: int) -> str:
    """When a process started, in words that no other of its id has; empty if there is none."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _told_by_ps(pid)
    # The state is the third field and the start the 22nd, of which the first two are cut off.
    return "" if fields[0] in "ZX" else f"{_boot()} {fields[19]}"


def _boot() -> str:
    """Which run of the machine this is: starts are counted from its beginning."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _told_by_ps(pid: int) -> str:
    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = told.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()
