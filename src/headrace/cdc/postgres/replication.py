"""The replication protocol, over a connection of psycopg2 and the functions of its libpq.

psycopg2 can read the stream itself. But it answers the server with a position of its own: once a
position was acknowledged, a keepalive moves it to all that the server has sent, if the change that
came last lies before it, as a change of a long transaction does. So a transaction that was read and
is not durable yet would be acknowledged. Here only `acknowledge` does that.
"""

from __future__ import annotations

import ctypes
import select
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from psycopg2 import _psycopg

from headrace.cdc.postgres.failures import failed, quoted
from headrace.cdc.postgres.position import lsn_text
from headrace.clock import SECOND, Clock
from headrace.closing import Closing

_EPOCH: Final = 946_684_800_000_000
_STATUS: Final = Struct(">cqqqqB")
_STATUS_EVERY: Final = 10 * SECOND
_WAL_DATA: Final = 0x77
_KEEPALIVE: Final = 0x6B

_library = ctypes.PyDLL(_psycopg.__file__)
"""The extension of psycopg2. A search for a function finds those of the libpq it is linked to."""


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(_library, name)
    found.restype, found.argtypes = result, arguments
    return found


_get = _function(
    "PQgetCopyData", ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int
)
_put = _function("PQputCopyData", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
_flush = _function("PQflush", ctypes.c_int, ctypes.c_void_p)
_consume = _function("PQconsumeInput", ctypes.c_int, ctypes.c_void_p)
_free = _function("PQfreemem", None, ctypes.c_void_p)
_result = _function("PQgetResult", ctypes.c_void_p, ctypes.c_void_p)
_clear = _function("PQclear", None, ctypes.c_void_p)
_field = _function("PQresultErrorField", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
_message = _function("PQerrorMessage", ctypes.c_char_p, ctypes.c_void_p)

_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_bytes.restype, _bytes.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)


class Stream(Closing):
    """The changes of a slot from a position on."""

    def __init__(
        self,
        connection: Any,
        slot: str,
        publication: str,
        lsn: int,
        clock: Clock,
        address: str,
        user: str,
    ) -> None:
        self._connection = connection
        self._pointer = ctypes.c_void_p(connection.pgconn_ptr)
        self._clock = clock
        self._address = address
        self._user = user
        self._received = self._acknowledged = lsn
        self._next_status = 0
        self.reached = lsn
        """The place up to which the server has sent all that was committed."""
        named = quoted(publication).replace("'", "''")
        options = f"proto_version '2', streaming 'on', publication_names '{named}'"
        self._cursor = connection.cursor()
        self._cursor.start_replication_expert(
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} ({options})",
            decode=False,
        )

    def close(self) -> None:
        self._connection.close()

    def frames(self) -> Iterator[bytes]:
        """The frames with changes that have arrived."""
        pointer, buffer = self._pointer, ctypes.c_void_p()
        reference = ctypes.byref(buffer)
        consumed = False
        while True:
            size = _get(pointer, reference, 1)
            if size > 0:
                frame = _bytes(buffer, size)
                _free(buffer)
                if frame[0] == _WAL_DATA:
                    yield frame
                elif frame[0] == _KEEPALIVE:
                    self._keepalive(frame)
            elif size == 0 and not consumed:
                if not _consume(pointer):
                    raise self._failure()
                consumed = True
            elif size == 0:
                break
            else:
                raise self._failure()
            if size > 0:
                consumed = False
        if self._clock.monotonic() >= self._next_status:
            self._send_status()

    def wait(self, seconds: float) -> None:
        """Return when there is something to read, or the time is over."""
        select.select([self._connection.fileno()], [], [], seconds)

    def acknowledge(self, lsn: int) -> None:
        """Tell the server that everything before a place may be forgotten."""
        if lsn > self._acknowledged:
            self._acknowledged = lsn
            self._received = max(self._received, lsn)
            self._send_status()

    def _keepalive(self, frame: bytes) -> None:
        self.reached = int.from_bytes(frame[1:9], "big")
        # Written less than sent is a reason for the server to tell when it has gone on.
        self._received = max(self._received, self.reached)
        if frame[17]:
            self._send_status()

    def _send_status(self) -> None:
        now = self._clock.now() - _EPOCH
        message = _STATUS.pack(b"r", self._received, self._acknowledged, self._acknowledged, now, 0)
        if _put(self._pointer, message, len(message)) <= 0 or _flush(self._pointer):
            raise self._failure()
        self._next_status = self._clock.monotonic() + _STATUS_EVERY

    def _failure(self) -> Exception:
        """The error that ended the stream."""
        code = None
        if result := _result(self._pointer):
            found = _field(result, ord("C"))
            code = None if found is None else found.decode()
            _clear(result)
        said = (_message(self._pointer) or b"").decode(errors="replace")
        return failed(code, said or "the stream of changes has ended", self._address, self._user)
