"""The prefork server: it has loaded all modules, and forks a Python process for each request.

    python -m headrace.runtime.prefork.server FD

FD is a listening socket. A client sends the command to run, as `client.py` does, and gets the id of
the process that runs it. The connection ends with the process.
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
"""Seconds for a client to send its request."""


def load() -> None:
    """Import all modules, except for the programs themselves, which run as `__main__`."""
    for module in ("headrace.runtime.data_source", *FORKED):
        importlib.import_module(module)
    for module in FORKED:
        del sys.modules[module]
    gc.freeze()  # or the first collection in a fork would copy all pages


def serve(listener: socket.socket) -> None:
    """Fork for every client, until the parent process is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the server does not wait for forks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all processes of Java
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
            request = json.loads(rest.read(LENGTH.unpack(head)[0]))
        child = os.fork()
    finally:
        if child:  # not in the fork
            for file in files:
                os.close(file)
    if child:
        asked.sendall(LENGTH.pack(child))
        return
    code = 1
    try:
        listener.close()
        _become(request, files)
        runpy.run_module(request["words"][1], run_name="__main__", alter_sys=True)
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


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take over the folder, environment and output of the client."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (files[0], 1), (files[1], 2)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = list(request["words"][1:])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
