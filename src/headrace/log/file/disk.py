"""The few calls to the operating system on which durability rests.

Everything that must survive a crash goes through a `Disk`, so that a test can put a double in its
place that loses, tears and reorders whatever was not synced, that fails, or that dies between two
steps.
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
"""Files that stay open for their next use, of all writers and readers of a log together."""

_PIECE_BYTES = 1 << 20


class Closeable(Protocol):
    """An open file."""

    def close(self) -> None: ...


File = TypeVar("File", bound=Closeable)

ReadInto = Callable[[memoryview, int], int]
"""Fills a buffer from a position of a file on; returns how many bytes there were."""


class Disk:
    """The real disk."""

    vfs: str | None = None
    """The SQLite VFS of the catalog; None for SQLite's own."""
    exclusive = False
    """Whether SQLite keeps its locks, because its VFS has no shared memory."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Closeable] = OrderedDict()
        self._lock = threading.Lock()
        in_child(self, Disk._renew)

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
            os.makedirs(path, exist_ok=True)

    def create(self, path: Path) -> None:
        """Make an empty file, in place of one that a crash left there."""
        self.remove(path)
        with translated(path), self.lent(_writable(path), lambda: _Descriptor(path, _NEW)):
            pass

    def write(self, path: Path, pieces: Iterable[Any], position: int) -> None:
        """Write all of some buffers, one after the other, from a position on."""
        with translated(path):
            try:
                with self.lent(_writable(path), lambda: _Descriptor(path, os.O_RDWR)) as file:
                    for piece in pieces:
                        position = _write_all(file.number, memoryview(piece), position)
            except FileNotFoundError as missing:
                raise LogError(
                    f"{path} is missing, and it was still being written",
                    hint="Somebody has removed it; restore it from a copy",
                ) from missing

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[ReadInto]:
        """Lend a file for any number of reads."""
        # One for each thread: those that read a segment together do not open it again and again.
        name = f"{path} {threading.get_ident()}"
        with self.lent(name, lambda: _Descriptor(path, os.O_RDONLY)) as file:
            yield lambda target, position: os.preadv(file.number, [target], position)

    def sync(self, path: Path) -> None:
        """Return when the file's bytes are on the device."""
        # A descriptor of its own, for this may be another thread than the one that writes.
        self._sync(path, os.O_RDWR, os.fdatasync)

    def rewrite(self, path: Path) -> None:
        """Write a file's bytes once more where they are, and sync them."""

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
        """Remove a file; one that is gone already is fine."""
        self._forget(path)
        with translated(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def close(self) -> None:
        """Close every file that is open."""
        with self._lock:
            files, self._files = self._files, OrderedDict()
        for file in files.values():
            file.close()

    @contextlib.contextmanager
    def lent(self, name: str, opened: Callable[[], File]) -> Iterator[File]:
        """A file that was kept open, or is opened now, and is kept open for its next use.

        Nobody else has it meanwhile, so none is closed in its user's hands.
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
            surplus = self._files.pop(name, None)  # two had it open at once
            self._files[name] = file
            if len(self._files) > _OPEN_FILES:
                surplus = self._files.popitem(last=False)[1]
        if surplus is not None:
            surplus.close()

    def _renew(self) -> None:
        # The open files are good in a child too: every write says where it goes.
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
    """The name under which a file is kept that is open for writing."""
    return f"{path} to write"


def _write_all(file: int, rest: memoryview, position: int) -> int:
    """Write all of a buffer from a position on; returns the position after it."""
    while rest:
        written = os.pwrite(file, rest, position)
        rest, position = rest[written:], position + written
    return position


class _Descriptor:
    """A file by its number."""

    def __init__(self, path: Path, flags: int) -> None:
        self.number = os.open(path, flags, 0o644)

    def close(self) -> None:
        os.close(self.number)


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
    return LogError(
        f"{path}: {error.strerror or error}",
        hint="Check the disk and the limit of open files (ulimit -n), then try again. Nothing of "
        "this commit is visible",
    )


def unreadable(error: OSError, path: Path) -> LogError:
    """The error for a file that is there and cannot be read, which proves no damage."""
    return LogError(
        f"{path} cannot be read: {error.strerror or error}",
        hint="Nothing was changed. Check the file's permissions, the limit of open files "
        "(ulimit -n) and the disk, then try again. If the disk has lost the file for good, "
        "restore it from a copy",
    )
