"""The reason why a broker stopped, extracted from its logs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_THROWN = re.compile(r"^(?:Caused by: |Exception in thread \S+ )?[\w.$]+(?:Exception|Error): (.+)$")
_LOGGED = re.compile(r"^[\d-]+ [\d:.]+ (?:ERROR|FATAL) [^:]+: (.+)$")
_TAIL = 200_000
_ROOM = 16 * 1024


def size(path: Path) -> int:
    """The size of a file now, so that later only newer lines are read."""
    return path.stat().st_size if path.exists() else 0


def reason(*written: tuple[Path, int]) -> str:
    """The last error in some log files, each read from an offset."""
    # On a full disk the broker cannot log that the disk is full.
    if any(path.exists() and shutil.disk_usage(path).free < _ROOM for path, _ in written):
        return "No space left on device"
    found = ""
    for path, begin in written:
        for line in _lines(path, begin):
            if match := _THROWN.match(line) or _LOGGED.match(line):
                found = match[1]
    if found:
        return found.strip().rstrip(".")
    last = [line for path, begin in written for line in _lines(path, begin) if line.strip()]
    return last[-1].strip() if last else "its log is empty"


def _lines(path: Path, begin: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(begin, size(path) - _TAIL))
        return file.read().decode(errors="replace").splitlines()
