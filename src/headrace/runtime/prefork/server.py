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

_LOADED = (
    "headrace.runtime.data_source",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
"""Modules that the programs import, after a fork of their own if not before it."""

_PATIENCE = 5.0
"""Seconds for a client to send its request."""


def load() -> None:
    """Import all modules, except for the programs themselves, which run as `__main__`."""
    for module in (*_LOADED, *FORKED):
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
    head, files, _, _ = socket.recv_fds(asked, LENGTH.size, 3)
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
    """Take over the folder, environment, input and output of the client."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Python reads these two when it starts, which was before.
    sys.path[0] = request["folder"]
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in added if folder and folder not in sys.path]
    sys.argv = list(request["words"][1:])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
