"""Segment files: where they lie, and reading from them at any position."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Protocol

from headrace.log.file import storage

SEGMENTS = "segments"


def segment_path(folder: Path, topic: int, partition: int, segment: int) -> Path:
    """Where a segment lies; made of numbers only, so no name can lead out of the folder."""
    return folder / SEGMENTS / f"{topic:06d}-{partition:05d}-{segment:010d}.arrows"


class SegmentFile(Protocol):
    """A segment, open for reading."""

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill the target from a position on; returns how many bytes there were."""

    def close(self) -> None: ...


class LocalSegment:
    """A segment on this machine's disk."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)

    def read_into(self, target: memoryview, position: int) -> int:
        return os.preadv(self._file, [target], position)

    def close(self) -> None:
        os.close(self._file)


class TieredSegment:
    """A segment on another filesystem."""

    def __init__(self, url: str) -> None:
        self._file = storage.open_file(url)
        self._lock = threading.Lock()

    def read_into(self, target: memoryview, position: int) -> int:
        with self._lock:
            self._file.seek(position)
            return int(self._file.readinto(target))

    def close(self) -> None:
        self._file.close()
