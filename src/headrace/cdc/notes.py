"""The state of each capture, noted in a file by whoever runs it.

A reader sees how far behind a capture is, and what its database holds back for it, without the
database, its password or its client.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from headrace.cdc.attachment import captures_folder
from headrace.clock import SECOND
from headrace.files import write_note
from headrace.log import Log

NOTED_EVERY = 2 * SECOND
_SILENT = 15 * SECOND
"""The time after which a capture that should have written a note is not running any more."""

State = Literal["running", "waiting", "stopped", "silent"]
"""The state of a capture: `waiting` for its database, or `silent` since it was killed."""


@dataclass(frozen=True)
class CaptureNote:
    """The last that a capture knew of its database. `at` is in microseconds."""

    prefix: str
    address: str
    state: State
    at: int
    lag: int | None = None
    unit: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """For people, such as the bytes of WAL that a slot holds back."""
    trouble: str | None = None

    def state_at(self, now: int) -> State:
        """Its state now: a capture that was killed could not note that."""
        if self.state != "stopped" and now - self.at > _SILENT:
            return "silent"
        return self.state


def write_capture_note(log: Log, note: CaptureNote) -> None:
    """Write down the state of a capture."""
    write_note(_path(log, note.prefix), json.dumps(asdict(note)))


def capture_note(log: Log, prefix: str) -> CaptureNote | None:
    """The last note of a capture; None if there is none, or another version of it."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        return CaptureNote(**json.loads(_path(log, prefix).read_text()))
    return None


def forget_capture_note(log: Log, prefix: str) -> None:
    """Remove the note of a capture."""
    _path(log, prefix).unlink(missing_ok=True)


def _path(log: Log, prefix: str) -> Path:
    return captures_folder(log) / "notes" / f"{prefix}.json"
