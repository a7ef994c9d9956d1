"""The capture and the follower of each store, in processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.closing import Closing
from headrace.errors import ServerError

CAPTURE = "capture"
STORES = {"search": "search", "cache": "cache", "warehouse": "delta"}
"""The kind of address of each store, by its name."""


@dataclass(frozen=True)
class Command:
    """A command of headrace, and the file with what it prints."""

    words: tuple[str, ...]
    output: Path


class Followers(Closing):
    """Processes of headrace, by name."""

    def __init__(self, url: str, reference: str, folder: Path, cache: str) -> None:
        kinds = {**STORES, "cache": cache}
        words: dict[str, tuple[str, ...]] = {CAPTURE: ("cdc", "run", "shop")}
        for name, kind in kinds.items():
            words[name] = ("stores", "run", reference, "--store", kind)
        self._commands = {
            name: Command(each, folder / f"{name}.txt") for name, each in words.items()
        }
        # Not as an option: every user of the machine can read those.
        self._environment: Mapping[str, str] = {**os.environ, "HEADRACE_LOG": url}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one, from where it was."""
        command = self._commands[name]
        with command.output.open("wb") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli.main", *command.words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                process_group=0,  # Ctrl-C is for the demo, which stops them
            )

    def kill(self, name: str) -> None:
        """Kill one, as `kill -9` does."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def is_running(self, name: str) -> bool:
        return name in self._running

    def check(self) -> None:
        """Raise what one has ended with that nobody has stopped."""
        for name, process in self._running.items():
            if process.poll() is not None:
                said = self._commands[name].output.read_text(errors="replace").strip()
                raise ServerError(
                    f"The process of the {name} ended with exit code {process.returncode}",
                    hint=said or "It printed nothing",
                )

    def close(self) -> None:
        """Stop all of them."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait()
        self._running.clear()
