"""A disk on which one system call fails, and all later ones until it is mended.

It counts every call of `headrace.log.file.disk`, and every call of SQLite that writes its files. A
write that fails has written half of its bytes.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from headrace.log.file import disk
from headrace.log.file.disk import Disk

_CALLS = ("open", "pwrite", "pread", "preadv", "fsync", "fdatasync", "makedirs", "unlink")
_names = itertools.count()


class Faults:
    """Counts calls. While armed, calls from number `at` on fail."""

    def __init__(self, at: int, number: int) -> None:
        self._at = at
        self._number = number
        self._armed = True
        self.calls = 0
        self.failed = 0

    def mend(self) -> None:
        """Let all calls succeed from now on."""
        self._armed = False

    def strikes(self) -> bool:
        self.calls += 1
        fails = self._armed and self.calls > self._at
        self.failed += fails
        return fails

    def error(self) -> OSError:
        return OSError(self._number, os.strerror(self._number))

    def sqlite_error(self) -> Exception:
        return apsw.FullError("full") if self._number == errno.ENOSPC else apsw.IOError("failed")


class FaultyDisk(Disk):
    """The real disk, with faults inside `fails()`."""

    exclusive = True

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults
        self.vfs = f"faulty-{next(_names)}"
        self._vfs = _FaultyVFS(self.vfs, faults)

    @contextmanager
    def fails(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "os", _FaultySystem(self.faults))
            yield


class _FaultySystem:
    """The module `os`, with functions that fail."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in _CALLS:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            if self._faults.strikes():
                if name == "pwrite":
                    file, data, position = arguments
                    os.pwrite(file, data[: len(data) // 2], position)
                raise self._faults.error()
            return real(*arguments, **options)

        return call


class _FaultyVFS(apsw.VFS):
    def __init__(self, name: str, faults: Faults) -> None:
        super().__init__(name, "")
        self._faults = faults

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _FaultyFile:
        return _FaultyFile(name, flags, self._faults)


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], faults: Faults
    ) -> None:
        super().__init__("", name, flags)
        self._faults = faults

    def xWrite(self, data: Any, offset: int) -> None:
        if self._faults.strikes():
            super().xWrite(bytes(data)[: len(data) // 2], offset)
            raise self._faults.sqlite_error()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._faults.strikes():
            raise self._faults.sqlite_error()
        super().xSync(flags)
