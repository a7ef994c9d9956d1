"""Background processes that outlive their parent, identified by pid and start time."""

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
    """A process by its id and its start time, since ids are reused."""

    pid: int
    started: str

    def alive(self) -> bool:
        """True if it still runs. A zombie does not count."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        # Whoever had ended when it was looked up has no start time.
        return self.started != "" and started_at(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to its process group, which may outlive it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, clock: Clock, within: int) -> None:
        """Terminate it, kill it if it does not end in time, and return when it has ended."""
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
    """Start a command in its own session, so that Ctrl-C or a closed terminal does not end it."""
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
    """The start time of a process, unique among those with its id; empty if it does not run."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _from_ps(pid)
    # The state is the third field and the start time the 22nd; the first two are cut off.
    return "" if fields[0] in "ZX" else f"{_boot()} {fields[19]}"


def _boot() -> str:
    """The id of the current boot, from which start times are counted."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _from_ps(pid: int) -> str:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()
