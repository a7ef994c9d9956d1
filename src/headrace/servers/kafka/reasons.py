"""Why a broker ended, in a line, from the many that it wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_THROWN = re.compile(r"^(?:Caused by: |Exception in thread \S+ )?[\w.$]+(?:Exception|Error): (.+)$")
_LOGGED = re.compile(r"^[\d-]+ [\d:.]+ (?:ERROR|FATAL) [^:]+: (.+)$")
_TAIL = 200_000
_ROOM = 16 * 1024


def size(path: Path) -> int:
    """How long a file is now, to read only what is written from here on."""
    return path.stat().st_size if path.exists() else 0


def reason(*written: tuple[Path, int]) -> str:
    """The words of the last thing that went wrong, in files read from a place on."""
    # A full disk has no room for the complaint about it either.
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
    return last[-1].strip() if last else "it said nothing"


def _lines(path: Path, begin: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(begin, size(path) - _TAIL))
        return file.read().decode(errors="replace").splitlines()
