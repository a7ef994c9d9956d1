"""Segment files: their paths, and reading from them at any position."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.log.file import storage
from headrace.log.file.disk import Disk, ReadInto

SEGMENTS = "segments"


def segment_path(folder: Path, topic: int, partition: int, segment: int) -> Path:
    """The path of a segment; made of numbers only, so no name can lead out of the folder."""
    return folder / SEGMENTS / f"{topic:06d}-{partition:05d}-{segment:010d}.arrows"


class SegmentFile(Protocol):
    """A segment to read from."""

    def reading(self) -> contextlib.AbstractContextManager[ReadInto]:
        """The open file, for any number of reads."""


@dataclass(frozen=True)
class LocalSegment:
    """A segment on this machine's disk."""

    disk: Disk
    path: Path

    def reading(self) -> contextlib.AbstractContextManager[ReadInto]:
        return self.disk.reading(self.path)


@dataclass(frozen=True)
class TieredSegment:
    """A segment on another filesystem."""

    disk: Disk
    url: str

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadInto]:
        with self.disk.lent(self.url, lambda: storage.open_file(self.url)) as file:

            def read_into(target: memoryview, position: int) -> int:
                file.seek(position)
                return int(file.readinto(target))

            yield read_into
