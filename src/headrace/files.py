"""Atomic writes of small files, such as a progress marker."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path


def write_note(path: Path, text: str) -> None:
    """Replace a file atomically and durably: after a power cut it has the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    sync_path(new)
    os.replace(new, path)
    sync_path(path.parent)


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Replace a file atomically. After a power cut it may be empty."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    new.write_bytes(data)
    os.replace(new, path)


def sync_path(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the device."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def private_file(path: Path) -> int:
    """Create an empty file that only its owner can read, if it does not exist. Return its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        sync_path(path.parent)
    except FileExistsError:
        pass
    return stat.S_IMODE(path.stat().st_mode)
