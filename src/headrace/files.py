"""Small files that say one thing, such as how far something is."""

from __future__ import annotations

import os
from pathlib import Path


def write_note(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, whatever was in it, also if the machine goes down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    sync_path(new)
    os.replace(new, path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Return when a file's bytes, or a folder's entries, are on the device."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
