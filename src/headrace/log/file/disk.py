"""The operating system calls that durability depends on.

Everything that must survive a crash goes through a `Disk`. Tests replace it by one that loses,
tears and reorders unsynced writes, that fails, or that dies between two steps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from headrace.errors import DiskFull, LogError, ReadOnlyLog
from headrace.forks import in_child

_OPEN_FILES = 64
"""Files kept open for reuse, by all writers and readers of a log together."""

_PIECE_BYTES = 1 << 20


class Closeable(Protocol):
    """An open file."""

    def close(self) -> None: ...


File = TypeVar("File", bound=Closeable)

ReadInto = Callable[[memoryview, int], int]
"""Fills a buffer from a file, starting at a position; returns the number of bytes read."""


class Disk:
    """The real disk."""

    vfs: str | None = None
    """The SQLite VFS of the catalog; None for SQLite's own."""
    exclusive = False
    """True if SQLite keeps its locks, because its VFS has no shared memory."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Closeable] = OrderedDict()
        self._lock = threading.Lock()
        in_child(self, Disk._renew)

    def step(self, name: str) -> None:
        """Called at each step of the commit protocol, for tests that crash there."""

    def boot(self) -> str:
        """The boot id, which changes whenever unsynced writes may have been lost.

        Empty where the system has none; then every open checks the unsynced tail.
        """
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def make_folder(self, path: Path) -> None:
        with translated(path):
            os.makedirs(path, exist_ok=True)

    def create(self, path: Path) -> None:
        """Create an empty file, replacing one that a crash left there."""
        self.remove(path)
        with translated(path), self.lent(_writable(path), lambda: _Descriptor(path, _NEW)):
            pass

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        """Write all of some buffers, one after the other, starting at a position."""
        with translated(path):
            try:
                with self.lent(_writable(path), lambda: _Descriptor(path, os.O_RDWR)) as file:
                    for piece in pieces:
                        position = _write_all(file.number, memoryview(piece), position)
            except FileNotFoundError as missing:
                raise LogError(
                    f"{path} is missing, but the log still writes to it",
                    hint="Something has removed it; restore it from a backup",
                ) from missing

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[ReadInto]:
        """Open a file for any number of reads."""
        # One per thread, so that threads reading the same segment do not keep reopening it.
        name = f"{path} {threading.get_ident()}"
        with self.lent(name, lambda: _Descriptor(path, os.O_RDONLY)) as file:
            yield lambda target, position: os.preadv(file.number, [target], position)

    def sync(self, path: Path) -> None:
        """Return when the file's bytes are on the device."""
        # With a descriptor of its own: another thread may be writing.
        self._sync(path, os.O_RDWR, os.fdatasync)

    def rewrite(self, path: Path) -> None:
        """Write a file's bytes again in place, and sync them."""

        def again(file: int) -> None:
            position = 0
            while piece := os.pread(file, _PIECE_BYTES, position):
                position = _write_all(file, memoryview(piece), position)
            os.fdatasync(file)

        self._sync(path, os.O_RDWR, again)

    def sync_folder(self, path: Path) -> None:
        """Return when the folder's entries are on the device."""
        self._sync(path, os.O_RDONLY, os.fsync)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        self._forget(path)
        with translated(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def close(self) -> None:
        """Close all open files."""
        with self._lock:
            files, self._files = self._files, OrderedDict()
        for file in files.values():
            file.close()

    @contextlib.contextmanager
    def lent(self, name: str, opened: Callable[[], File]) -> Iterator[File]:
        """A file from the cache of open files, or opened now; it returns to the cache after use.

        Nobody else has it meanwhile, so it cannot be closed while in use.
        """
        with self._lock:
            file = cast("File | None", self._files.pop(name, None))
        if file is None:
            file = opened()
        try:
            yield file
        except BaseException:
            file.close()
            raise
        with self._lock:
            surplus = self._files.pop(name, None)  # two users had it open at once
            self._files[name] = file
            if len(self._files) > _OPEN_FILES:
                surplus = self._files.popitem(last=False)[1]
        if surplus is not None:
            surplus.close()

    def _renew(self) -> None:
        # A child may use the open files too: every write has an explicit position.
        self._lock = threading.Lock()

    def _forget(self, path: Path) -> None:
        with self._lock:
            names = [name for name in self._files if name.startswith(f"{path} ")]
            files = [self._files.pop(name) for name in names]
        for file in files:
            file.close()

    def _sync(self, path: Path, flags: int, call: Callable[[int], None]) -> None:
        with translated(path):
            file = os.open(path, flags)
            try:
                call(file)
            finally:
                os.close(file)


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


def _writable(path: Path) -> str:
    """The cache name of a file that is open for writing."""
    return f"{path} to write"


def _write_all(file: int, rest: memoryview, position: int) -> int:
    """Write all of a buffer at a position; return the position after it."""
    while rest:
        written = os.pwrite(file, rest, position)
        rest, position = rest[written:], position + written
    return position


class _Descriptor:
    """A file descriptor."""

    def __init__(self, path: Path, flags: int) -> None:
        self.number = os.open(path, flags, 0o644)

    def close(self) -> None:
        os.close(self.number)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn system errors into headrace's."""
    try:
        yield
    except OSError as error:
        raise translate(error, path) from error


def translate(error: OSError, path: Path) -> Exception:
    """The headrace error for a system error; FileNotFoundError stays as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"No space left for {path}",
            hint="Free some space, or lower the topics' retention and run "
            "'headrace topics upkeep'; then try again. Nothing of this commit is visible",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyLog(
            f"{path} is not writable: {error.strerror}",
            hint="Check the folder's owner and permissions. Reading the log still works",
        )
    if isinstance(error, FileNotFoundError):
        return error
    return LogError(
        f"{path}: {error.strerror or error}",
        hint="Check the disk and the limit on open files (ulimit -n), then try again. Nothing of "
        "this commit is visible",
    )


def unreadable(error: OSError, path: Path) -> LogError:
    """The error for an existing file that cannot be read, which does not prove damage."""
    return LogError(
        f"{path} cannot be read: {error.strerror or error}",
        hint="Nothing was changed. Check the file's permissions, the limit on open files "
        "(ulimit -n) and the disk, then try again. If the disk has lost the file for good, "
        "restore it from a backup",
    )
