"""The connection that reads events of the binlog, as a replica does."""

from __future__ import annotations

import logging
import select
import ssl
from collections.abc import Callable
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import BinLogEvent, FormatDescriptionEvent
from pymysqlreplication.exceptions import MalformedBinLogEvent

from headrace.cdc.mysql.connection import Address, translated
from headrace.cdc.mysql.position import Position
from headrace.closing import Closing
from headrace.errors import SourceError, SourceUnavailable

_HEARTBEAT: Final = 2
"""The seconds after which a quiet server says that it is there, and where its binlog is."""
_SILENCE: Final = 60
"""The seconds without a word after which a server is taken for gone."""
_NOT_THERE: Final = 1236
"""The server's error for a position that its binlog does not have."""

# Its warnings repeat errors that we raise.
logging.getLogger("pymysqlreplication").setLevel(logging.CRITICAL)


class PositionNotFound(Exception):
    """The server's binlog does not have the position that reading should start at."""


class EventStream(Closing):
    """Events after a position, each as the package has it.

    A connection that is lost is not made again here: the package would begin at the old position.
    """

    def __init__(
        self,
        address: Address,
        server_id: int,
        start: Position,
        monotonic: Callable[[], int],
        *,
        by_gtid: bool,
        schemas: list[str],
        tables: list[str],
    ) -> None:
        self._address = address
        self._monotonic = monotonic
        self._connections: list[Any] = []
        where: dict[str, Any] = (
            {"is_mariadb": True, "auto_position": start.gtid}
            if by_gtid
            else {"log_file": start.file, "log_pos": start.offset, "resume_stream": True}
        )
        self._reader = BinLogStreamReader(
            {},
            server_id,
            blocking=True,
            slave_heartbeat=_HEARTBEAT,
            filter_non_implemented_events=False,
            freeze_schema=True,
            only_schemas=schemas,
            only_tables=tables,
            enable_logging=False,
            pymysql_wrapper=self._connect,
            **where,
        )
        self._heard = monotonic()
        self._poll = select.poll()
        try:
            # The server refuses a position before it describes the format of its binlog.
            while not isinstance(self.next(), FormatDescriptionEvent):
                pass
            self._poll.register(self._connections[0]._sock, select.POLLIN)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> tuple[str, int]:
        """The file and the offset after the last event."""
        return self._reader.log_file, self._reader.log_pos

    def ready(self, seconds: float) -> bool:
        """Wait for an event, if there is none yet."""
        if self._buffered() or self._poll.poll(seconds * 1000):
            self._heard = self._monotonic()
            return True
        if self._monotonic() - self._heard > _SILENCE * 1_000_000:
            raise SourceUnavailable(
                f"{self._address} has said nothing for {_SILENCE} seconds",
                hint="Look at the server and at the network; the capture connects again",
            )
        return False

    def next(self) -> BinLogEvent:
        """The next event, which is waited for."""
        try:
            event = self._reader.fetchone()
        except pymysql.MySQLError as error:
            if error.args and error.args[0] == _NOT_THERE:
                raise PositionNotFound(str(error.args[1])) from None
            raise translated(error, self._address) from None
        except (MalformedBinLogEvent, LookupError, ValueError) as error:
            file, offset = self.place
            raise SourceError(
                f"an event after {file}:{offset} of the binlog cannot be read: {error}",
                hint="Report it with the version of the server",
            ) from error
        if event is None:
            raise SourceUnavailable(
                f"{self._address} ended the binlog", hint="It is shutting down; start it again"
            )
        if isinstance(event, FormatDescriptionEvent):
            # A server that starts, or crashed before this file, numbers its tables anew.
            self._reader.table_map.clear()
        return event

    def close(self) -> None:
        for connection in self._connections:
            if connection.open:
                connection._force_close()  # It waits for no answer of the server.

    def _connect(self, **settings: Any) -> Any:
        """Give the package its two connections, for events and for questions, but no third."""
        if len(self._connections) == 2:
            raise SourceUnavailable(
                f"{self._address} closed the connection",
                hint="Start the server; capturing goes on where it was when it is back",
            )
        wanted = {key: settings[key] for key in ("cursorclass",) if key in settings}
        self._connections.append(self._address.connect(**wanted))
        return self._connections[-1]

    def _buffered(self) -> bool:
        """True if bytes have been read from the socket, or can be, without waiting."""
        connection = self._connections[0]
        connection._sock.settimeout(0)
        try:
            return bool(connection._rfile.peek(1))
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except OSError as error:
            raise translated(error, self._address) from None
