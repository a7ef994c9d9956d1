"""A disk whose machine can lose power: unsynced writes may be lost, torn or reordered.

The files are real, so everything works as usual. Beside them, the disk records which bytes of each
file are on the device for certain, and every write since. `crash` makes a folder as it might look
after a power cut: any part of each unsynced write may be there, independently of earlier writes,
and a file whose folder was not synced may be gone.

SQLite's files are recorded too, through a VFS. Its shared memory cannot be, so it runs with
exclusive locks, which changes nothing about its writes and syncs. `everywhere` applies the VFS to
all databases that are opened, those of views included.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.log.file.checksums import checked_vfs
from headrace.log.file.disk import Disk, translate

_SECTOR = 512
_SYSTEMS = apsw.vfs_names()[0]
"""SQLite's own VFS, the default one."""
_names = itertools.count()


@dataclass
class _Book:
    """The recorded state of one file."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    named: bool = False
    """True if the file's folder entry is on the device."""
    nameless: bool = False
    """True if the entry was lost when its folder could not be synced."""

    def sync(self) -> None:
        for position, data in self.pending:
            _apply(self.durable, position, data)
        self.pending.clear()

    def after_crash(self, choose: random.Random, *, kept: bool) -> bytes:
        content = bytearray(self.durable)
        if kept:
            for position, data in self.pending:
                _apply(content, position, data)
            return bytes(content)
        for position, data in self.pending:
            if data is None:
                if choose.random() < 0.5:
                    _apply(content, position, None)
                continue
            fate = choose.random()
            if fate < 0.4:
                continue
            if fate < 0.6:
                _apply(content, position, data)
                continue
            for start in range(0, len(data), _SECTOR):
                if choose.random() < 0.5:
                    _apply(content, position + start, data[start : start + _SECTOR])
        return bytes(content)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    """Write data at a position; None truncates the file there."""
    if data is None:
        del content[position:]
        return
    if len(content) < position + len(data):
        content.extend(bytes(position + len(data) - len(content)))
    content[position : position + len(data)] = data


class LossyDisk(Disk):
    """A lossy disk. `broken` names one kind of sync that it skips:

    `segment` a segment's bytes, `earlier` those of segments that the current commit has not written
    to, `folder` the names of segments, `catalog` SQLite's syncs.
    """

    exclusive = True

    def __init__(self, broken: str | None = None) -> None:
        super().__init__()
        self._broken = broken
        self._books: dict[Path, _Book] = {}
        self._removed: dict[Path, _Book] = {}
        self._just_written: set[Path] = set()
        self.failing: set[str] = set()
        """Syncs that fail now: `segment`, `folder`, `catalog`. The writes that they should have
        synced are dropped, and a later sync does not restore them, as on a real system."""
        self.vfs = f"lossy-{next(_names)}"
        self._vfs = _LossyVFS(self.vfs, self)
        self._folders: set[Path] = set()
        """Folders whose own entry is on the device."""

    @contextlib.contextmanager
    def everywhere(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Record every database that is opened meanwhile, and every folder that is synced."""

        def lock(connection: apsw.Connection) -> None:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")

        checked_vfs()  # on its first use it is built on the default VFS, and outlives this one
        vfs = _LossyVFS(f"{self.vfs}-everywhere", self, default=True)
        apsw.connection_hooks.append(lock)
        try:
            with patch.context() as patched:
                patched.setattr("headrace.store.sqlite.database.sync_path", self.sync_folder)
                yield
        finally:
            apsw.connection_hooks.remove(lock)
            vfs.unregister()

    def boot(self) -> str:
        return "before the crash"

    # What headrace writes itself

    def create(self, path: Path) -> None:
        super().create(path)
        self.created(path)

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        data = b"".join(bytes(piece) for piece in pieces)
        super().write(path, [data], position)
        self._book(path).pending.append((position, data))
        self._just_written.add(path)

    def step(self, name: str) -> None:
        if name == "began":
            self._just_written.clear()

    def sync(self, path: Path) -> None:
        super().sync(path)
        if "segment" in self.failing:
            self._book(path).pending.clear()
            raise _failed(path)
        forgotten = self._broken == "segment" or (
            self._broken == "earlier" and path not in self._just_written
        )
        if not forgotten:
            self._book(path).sync()

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        if "folder" in self.failing and path.name == "segments":
            for entry, book in self._books.items():
                book.nameless |= entry.parent == path and not book.named
            raise _failed(path)
        if self._broken != "folder" or path.name != "segments":
            self.named(path)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.removed(path)

    def rewrite(self, path: Path) -> None:
        super().rewrite(path)
        book = self._book(path)
        book.pending.append((0, path.read_bytes()))
        if "catalog" in self.failing:
            book.pending.clear()
            raise _failed(path)
        book.sync()

    # What SQLite writes

    def created(self, path: Path) -> None:
        self._books[path] = _Book()

    def wrote(self, path: Path, position: int, data: bytes | None) -> None:
        self._book(path).pending.append((position, data))

    def synced(self, path: Path) -> None:
        if "catalog" in self.failing:
            self._book(path).pending.clear()
            raise apsw.IOError("the catalog cannot be synced")
        if self._broken == "catalog":
            return
        self._book(path).sync()
        if path.name.endswith("-wal") and not self._book(path).named:
            # SQLite's own VFS syncs the folder with the first sync of a new WAL.
            self.named(path.parent)

    def removed(self, path: Path) -> None:
        book = self._books.pop(path, None)
        if book is not None and book.named:
            self._removed[path] = book

    def named(self, folder: Path) -> None:
        self._folders.update(path for path in folder.iterdir() if path.is_dir())
        for path, book in self._books.items():
            if path.parent == folder and not book.nameless:
                book.named = True
        for path in [path for path in self._removed if path.parent == folder]:
            del self._removed[path]

    # The crash

    def crash(self, folder: Path, after: Path, choose: random.Random) -> None:
        """Make in `after` what might be left of `folder`.

        Half of the time all of SQLite's writes in a folder are there, as if the system had written
        them back by itself: then the catalog refers to lost bytes.
        """
        folders = {path.parent for path in self._books if path.parent != folder}
        lost = {path for path in sorted(folders - self._folders) if choose.random() < 0.5}
        keeps = {path for path in sorted({folder, *folders}) if choose.random() < 0.5}
        gone = {path: book for path, book in self._removed.items() if path not in self._books}
        for path, new in [*self._books.items(), *gone.items()]:
            kept = path.parent in keeps and path.parent.name != "segments"
            if path.parent in lost:
                continue
            book = new
            if path in self._removed and not new.named and choose.random() < 0.5:
                book = self._removed[path]  # the name still refers to the previous file
            if path in gone and choose.random() < 0.5:
                continue
            if not book.named and not kept and choose.random() < 0.5:
                continue
            target = after / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(book.after_crash(choose, kept=kept))

    def _book(self, path: Path) -> _Book:
        return self._books.setdefault(path, _Book())


def _failed(path: Path) -> Exception:
    return translate(OSError(errno.EIO, os.strerror(errno.EIO)), path)


class _LossyVFS(apsw.VFS):
    def __init__(self, name: str, disk: LossyDisk, *, default: bool = False) -> None:
        super().__init__(name, _SYSTEMS, makedefault=default)
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _LossyFile:
        assert name is not None
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        new = not path.exists()
        file = _LossyFile(name, flags, self._disk, path)
        if new:
            self._disk.created(path)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.removed(Path(filename))
        if syncdir:
            self._disk.named(Path(filename).parent)


class _LossyFile(apsw.VFSFile):
    def __init__(
        self, name: str | apsw.URIFilename, flags: list[int], disk: LossyDisk, path: Path
    ) -> None:
        super().__init__(_SYSTEMS, name, flags)
        self._disk = disk
        self._path = path

    def xWrite(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.wrote(self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.wrote(self._path, newsize, None)

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._path)  # the only device that matters
