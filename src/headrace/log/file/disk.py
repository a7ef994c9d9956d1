"""The few calls to the operating system on which durability rests.

Everything that must survive a crash goes through a `Disk`, so that a test can put a double in its
place that loses, tears and reorders whatever was not synced, or that dies between two steps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.errors import DiskFull, LogError, ReadOnlyLog

_OPEN_FILES = 64


class Disk:
    """The real disk."""

    vfs: str | None = None
    """The SQLite VFS of the catalog; None for SQLite's own."""
    exclusive = False
    """Whether SQLite keeps its locks, because its VFS has no shared memory."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, int] = OrderedDict()
        self._lock = threading.Lock()

    def step(self, name: str) -> None:
        """Called at each step of the commit protocol, for tests that crash there."""

    def boot(self) -> str:
        """A word that changes when unsynced writes may have been lost: at every boot.

        Empty where the system does not tell, and then every open checks the unsynced tail.
        """
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def make_folder(self, path: Path) -> None:
        with translated(path):
            path.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path) -> None:
        """Make an empty file, or empty the one that a crash left there."""
        with translated(path):
            self._forget(path)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            with self._lock:
                self._files[path] = file

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        """Write all of some buffers, one after the other, from a position on."""
        with translated(path):
            try:
                file = self._file(path)
            except FileNotFoundError as missing:
                raise LogError(
                    f"{path} is missing, and it was still being written",
                    hint="Somebody has removed it; restore it from a copy",
                ) from missing
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    written = os.pwrite(file, rest, position)
                    rest, position = rest[written:], position + written

    def sync(self, path: Path) -> None:
        """Return when the file's bytes are on the device."""
        # A descriptor of its own, for this may be another thread than the one that writes.
        self._sync(path, os.O_RDWR, os.fdatasync)

    def sync_folder(self, path: Path) -> None:
        """Return when the folder's entries are on the device."""
        self._sync(path, os.O_RDONLY, os.fsync)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        self._forget(path)
        with translated(path), contextlib.suppress(FileNotFoundError):
            path.unlink()

    def close(self) -> None:
        for path in list(self._files):
            self._forget(path)

    def _file(self, path: Path) -> int:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = os.open(path, os.O_RDWR)
                if len(self._files) > _OPEN_FILES:
                    os.close(self._files.popitem(last=False)[1])
            self._files.move_to_end(path)
            return file

    def _forget(self, path: Path) -> None:
        with self._lock:
            file = self._files.pop(path, None)
        if file is not None:
            os.close(file)

    def _sync(self, path: Path, flags: int, call: Callable[[int], None]) -> None:
        with translated(path):
            file = os.open(path, flags)
            try:
                call(file)
            finally:
                os.close(file)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the system's errors into headrace's."""
    try:
        yield
    except OSError as error:
        raise translate(error, path) from error


def translate(error: OSError, path: Path) -> Exception:
    """The headrace error for one of the system's; a missing file stays what it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"No space left for {path}",
            hint="Free some space, or lower the topics' retention and run "
            "'headrace topics upkeep'; then try again. Nothing of this commit is visible",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyLog(
            f"{path} cannot be written: {error.strerror}",
            hint="Check the folder's owner and permissions. What is in the log can still be read",
        )
    if isinstance(error, FileNotFoundError):
        return error
    return LogError(f"{path}: {error.strerror or error}")
