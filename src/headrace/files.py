"""Atomic writes of small files, such as a progress marker."""

from __future__ import annotations

import os
from pathlib import Path


def write_note(path: Path, text: str) -> None:
    """Replace a file atomically and durably: after a power cut it has the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    sync_path(new)
    os.replace(new, path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the device."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
