"""A process that has loaded what Spark's Pythons need, and becomes one of them when it is asked to.

    python -m headrace.runtime.prefork.server FD

FD is a socket that listens. Each who connects says what it would have run, as `launch.py` does, and
is told the number of the process that does so; the connection ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from typing import Any

from headrace.runtime.prefork.client import LENGTH
from headrace.runtime.prefork.starting import FORKED

_PATIENCE = 5.0
"""Seconds for whoever connects to say what it wants."""


def load() -> None:
    """Load all that is going to be run, but for the programs themselves: these run as such."""
    for module in ("headrace.runtime.data_source", *FORKED):
        importlib.import_module(module)
    for module in FORKED:
        del sys.modules[module]
    gc.freeze()  # or the first collection in a fork would make it a copy


def serve(listener: socket.socket) -> None:
    """Fork for everybody who asks, until whoever has started this is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all that Java starts
    with selectors.DefaultSelector() as waiting:
        waiting.register(sys.stdin, selectors.EVENT_READ)
        waiting.register(listener, selectors.EVENT_READ)
        while sys.stdin not in [key.fileobj for key, _ in waiting.select()]:
            asked, _ = listener.accept()
            with asked, contextlib.suppress(OSError, ValueError, struct.error):
                _answer(listener, asked)


def _answer(listener: socket.socket, asked: socket.socket) -> None:
    asked.settimeout(_PATIENCE)
    head, files, _, _ = socket.recv_fds(asked, LENGTH.size, 2)
    child = -1
    try:
        with asked.makefile("rb") as rest:
            wish = json.loads(rest.read(LENGTH.unpack(head)[0]))
        child = os.fork()
    finally:
        if child:  # which is all the same to the fork
            for file in files:
                os.close(file)
    if child:
        asked.sendall(LENGTH.pack(child))
        return
    code = 1
    try:
        listener.close()
        _become(wish, files)
        runpy.run_module(wish["words"][1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _become(wish: dict[str, Any], files: list[int]) -> None:
    """Be where the other is that has asked: its folder, its environment, its output."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (files[0], 1), (files[1], 2)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(wish["folder"])
    os.environ.clear()
    os.environ.update(wish["environment"])
    sys.argv = list(wish["words"][1:])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
