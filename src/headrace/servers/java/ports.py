"""Ports on loopback that nobody listens on."""

from __future__ import annotations

import contextlib
import random
import socket

from headrace.clock import SECOND, SystemClock
from headrace.errors import PortTaken, ServerError

HOST = "127.0.0.1"

LAST = 65_535
"""The highest port that there is."""

_RANGE = range(20_000, 32_000)
"""Below what systems give to outgoing connections. One of those could take the port of a broker
that is down for a moment."""

_A_MOMENT = 3 * SECOND


def free(count: int) -> list[int]:
    """So many ports that are free now, no two the same."""
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
    """Return if the port is free, or is so in a moment.

    Who looks for free ports holds them for a while, and a process that was killed has its own, and
    even answers there, until the last of its threads is gone.
    """
    clock = SystemClock()
    until = clock.monotonic() + _A_MOMENT
    while (error := _refusal(port)) is not None:
        if clock.monotonic() >= until:
            raise PortTaken(
                f"Port {port} of {HOST} cannot be had: {error.strerror}",
                hint="Stop what listens there, or choose another port; 0 means any that is free",
                port=port,
            )
        clock.sleep(SECOND // 20)


def answers(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _refusal(port: int) -> OSError | None:
    """Why a port cannot be had, if it cannot."""
    try:
        _bound(port).close()
    except OSError as error:
        return error
    return None


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        # As servers do: a connection that is still fading away does not keep the port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError:
        made.close()
        raise
    return made
