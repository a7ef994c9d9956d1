"""Transactions that the server sends before their commit, since they are large."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import Final

from headrace.closing import Closing

_IN_MEMORY: Final = 4 << 20
_HEAD: Final = Struct(">II")


class InProgress(Closing):
    """The messages of a transaction: some megabytes in memory, the others in a file without a name.

    Each belongs to a subtransaction, and what is rolled back is left out when they are read.
    """

    def __init__(self) -> None:
        self._aborted: set[int] = set()
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115

    def close(self) -> None:
        self._file.close()

    def add(self, number: int, message: bytes) -> None:
        """Keep a message of a subtransaction."""
        self._file.write(_HEAD.pack(number, len(message)))
        self._file.write(message)

    def abort(self, number: int) -> None:
        """Forget the messages of a subtransaction."""
        self._aborted.add(number)

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            number, size = _HEAD.unpack(head)
            message = self._file.read(size)
            if number not in self._aborted:
                yield message
