"""Segment files: where they lie, and reading from them at any position."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.log.file import storage
from headrace.log.file.disk import Disk

SEGMENTS = "segments"


def segment_path(folder: Path, topic: int, partition: int, segment: int) -> Path:
    """Where a segment lies; made of numbers only, so no name can lead out of the folder."""
    return folder / SEGMENTS / f"{topic:06d}-{partition:05d}-{segment:010d}.arrows"


class SegmentFile(Protocol):
    """A segment to read from."""

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill the target from a position on; returns how many bytes there were."""


@dataclass(frozen=True)
class LocalSegment:
    """A segment on this machine's disk."""

    disk: Disk
    path: Path

    def read_into(self, target: memoryview, position: int) -> int:
        return self.disk.read_into(self.path, target, position)


@dataclass(frozen=True)
class TieredSegment:
    """A segment on another filesystem."""

    disk: Disk
    url: str

    def read_into(self, target: memoryview, position: int) -> int:
        with self.disk.lent(self.url, lambda: storage.open_file(self.url)) as file:
            file.seek(position)
            return int(file.readinto(target))
