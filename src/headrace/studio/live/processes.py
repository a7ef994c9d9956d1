"""Applications that the studio started: processes of their own, which end with it.

If the studio is killed, nobody reads what they print any more, and a run ends by itself when it
prints its next progress line, within some seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import IO

from headrace.clock import Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import AlreadyRunning, InvalidSetting
from headrace.studio.settings import StudioSettings

_LINES = 60
_PRINTED = 500
_ROWS_OF_A_DIFF = "20"
_PATIENCE = 20.0
"""Seconds that an application has to stop, before it is killed."""


@dataclass
class Started:
    """A process that the studio started, and the last lines that it printed."""

    app: str
    verb: str
    process: subprocess.Popen[str]
    since: int
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=_PRINTED))
    """Its results, of which a run has none: a rebuild prints its differences in JSON."""
    asked: str = ""
    """The request to end it: `stop` or `kill`."""
    readers: tuple[threading.Thread, ...] = ()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def failed(self) -> bool:
        """True if it ended by itself, and not well."""
        return not self.alive and not self.asked and self.process.returncode != 0

    @property
    def reason(self) -> str:
        """The reason of a failure: the error that it printed last, else its exit code."""
        lines = list(self.lines)
        first = next(
            (n for n in reversed(range(len(lines))) if lines[n].startswith("error:")), None
        )
        if first is not None:
            return "\n".join(lines[first:]).removeprefix("error: ")
        code = self.process.returncode
        if code is not None and code < 0:
            return f"It was ended by {signal.Signals(-code).name}, and the studio did not do that"
        return "\n".join([f"It ended with exit code {code}", *lines[-3:]])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process; SIGKILL to all of its group, Java included."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            elif self.alive:
                self.process.send_signal(number)

    def join(self, seconds: float) -> bool:
        """True if it ends within so many seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        for reader in self.readers:
            reader.join(seconds)
        return True


class Processes(Closing):
    """The applications that a studio started, by their names. Closing it stops them."""

    def __init__(self, settings: StudioSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._started: dict[str, Started] = {}

    def of(self, app: str, view: str = "") -> Started | None:
        """The process of an application, or of a rebuild of its view, that was started last."""
        return self._started.get(_place(app, view))

    def start(self, app: str, verb: str = "run") -> Started:
        """Start an application that the studio was given. `verb` is a command: run or drain."""
        return self._start(app, "", verb, ["--yes"] if verb == "drain" else [])

    def rebuild(self, app: str, view: str, *, switch: bool) -> Started:
        """Compute a view again beside the live one, to compare the two or to switch."""
        decision = "--yes" if switch else "--diff"
        return self._start(app, view, "rebuild", [view, decision, "--limit", _ROWS_OF_A_DIFF])

    def _start(self, app: str, view: str, verb: str, options: list[str]) -> Started:
        reference = self._settings.references.get(app)
        if reference is None:
            raise InvalidSetting(
                f"The studio was not given the application {app!r}",
                hint="Only applications named on its command line can be started: "
                "headrace studio MODULE:APP",
            )
        with self._lock:
            before = self._started.get(_place(app, view))
            if before is not None and before.alive:
                what = f"View {view!r} is being rebuilt" if view else f"Application {app!r} runs"
                raise AlreadyRunning(
                    f"{what} already, as process {before.pid}", hint="Stop it first"
                )
            started = self._launch(app, [verb, reference, *options, "--json"])
            self._started[_place(app, view)] = started
        return started

    def stop(self, app: str, view: str = "") -> None:
        """Ask an application to stop: it stores what it has computed. A rebuild keeps it too."""
        self._mine(_place(app, view), "stop").signal(signal.SIGTERM)

    def kill(self, app: str) -> None:
        """Kill an application, as a crash would, and return when it is gone."""
        killed = self._mine(app, "kill")
        killed.signal(signal.SIGKILL)
        killed.join(_PATIENCE)

    def close(self) -> None:
        with self._lock:
            running = [each for each in self._started.values() if each.alive]
            for each in running:
                each.asked = "stop"
                each.signal(signal.SIGTERM)
            for each in running:
                if not each.join(_PATIENCE):
                    each.signal(signal.SIGKILL)
                    each.join(_PATIENCE)

    def _mine(self, place: str, asked: str) -> Started:
        found = self._started.get(place)
        if found is None or not found.alive:
            raise InvalidSetting(
                f"The studio does not run {place!r}",
                hint="It stops only what it has started itself",
            )
        found.asked = asked
        return found

    def _launch(self, app: str, words: list[str]) -> Started:
        process = subprocess.Popen(
            [*self._settings.program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Not as an option: every user of the machine can read those, and it may hold secrets.
            env={**os.environ, "HEADRACE_LOG": self._settings.log},
            process_group=0,
        )
        started = Started(app, words[0], process, self._clock.now())
        assert process.stdout is not None
        assert process.stderr is not None
        pairs = ((process.stdout, started.printed), (process.stderr, started.lines))
        started.readers = tuple(
            threading.Thread(target=_keep, args=pair, daemon=True) for pair in pairs
        )
        for reader in started.readers:
            reader.start()
        return started


def _place(app: str, view: str) -> str:
    return f"{app}/{view}" if view else app


def _keep(stream: IO[str], lines: deque[str]) -> None:
    with stream:
        for line in stream:
            lines.append(line.rstrip("\n"))
