"""A disk that records the step that a process has reached, and can kill it there."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.log.file.disk import Disk

STEPS = (
    "not begun",
    "encoded",
    "began",
    "created a segment",
    "writing",
    "wrote",
    "recorded",
    "synced a segment",
    "before commit",
    "committed",
)
"""The steps of the commit protocol, in order. At `writing`, half of the bytes are written."""


@dataclass(frozen=True)
class KillAt:
    """Kill the process when it reaches a step for the nth time."""

    step: str
    time: int


class StepFile:
    """A byte that outlives its process: the number of the last step that it reached."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(b"\0")
        with path.open("r+b") as file:
            self._byte = mmap.mmap(file.fileno(), 1)

    @property
    def step(self) -> str:
        return STEPS[self._byte[0]]

    @step.setter
    def step(self, name: str) -> None:
        self._byte[0] = STEPS.index(name)


class CrashingDisk(Disk):
    """The real disk, for a process to kill."""

    def __init__(self, steps: StepFile, kill_at: KillAt | None) -> None:
        super().__init__()
        self._steps = steps
        self._kill_at = kill_at
        self._seen = 0
        steps.step = "not begun"

    def step(self, name: str) -> None:
        self._steps.step = name
        if self._kill_at is not None and self._kill_at.step == name:
            self._seen += 1
            if self._seen == self._kill_at.time:
                os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        data = b"".join(bytes(piece) for piece in pieces)
        half = len(data) // 2
        super().write(path, [data[:half]], position)
        self.step("writing")
        super().write(path, [data[half:]], position + half)
