"""Free ports on loopback."""

from __future__ import annotations

import contextlib
import random
import socket

from headrace.clock import SECOND, SystemClock
from headrace.errors import PortTaken, ServerError

HOST = "127.0.0.1"

LAST = 65_535
"""The highest port number."""

_RANGE = range(20_000, 32_000)
"""Below the ephemeral ports: an outgoing connection could take the port of a stopped broker."""

_A_MOMENT = 3 * SECOND


def free(count: int) -> list[int]:
    """Distinct ports that are free now."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(_RANGE, k=len(_RANGE)):
            if len(found) == count:
                return found
            with contextlib.suppress(OSError):
                held.enter_context(_bound(port))
                found.append(port)
    raise ServerError(f"There are no {count} free ports between {_RANGE[0]} and {_RANGE[-1]}")


def require(port: int) -> None:
    """Return once the port is free; raise if it stays taken.

    A search for free ports holds them briefly, and a killed process keeps its port, and even
    answers on it, until its last thread is gone.
    """
    clock = SystemClock()
    until = clock.monotonic() + _A_MOMENT
    while (error := _refusal(port)) is not None:
        if clock.monotonic() >= until:
            raise PortTaken(
                f"Port {port} of {HOST} cannot be used: {error.strerror}",
                hint="Stop the process that uses it, or choose another port; 0 means any free port",
                port=port,
            )
        clock.sleep(SECOND // 20)


def answers(port: int) -> bool:
    """True if a process accepts connections on the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _refusal(port: int) -> OSError | None:
    """The error of binding the port; None if it is free."""
    try:
        _bound(port).close()
    except OSError as error:
        return error
    return None


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        # As servers do: a connection in TIME_WAIT does not block the port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError:
        made.close()
        raise
    return made
