"""Start the prefork server, and give Spark a Python that uses it.

Spark starts a Python process for each streaming query that reads the log, and gives it ten seconds
to answer. It starts more of them, one after the other, to create, plan and run a source. Importing
pyspark and headrace takes a second of CPU in each. So one server imports them once, while Java
starts, and is forked for all others. Spark's Python is a script that asks the server for a fork.
For other programs, or without a server, it is plain Python.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.forks import at_exit

FORKED = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""The programs that Spark starts. The daemon forks workers, which then need no imports either."""

_PATIENCE = 5.0
"""Seconds for the server to end. Once it has loaded everything, it ends at once."""


@functools.cache
def python() -> str:
    """Return the path of Spark's Python, valid as long as this process lives."""
    if sys.platform != "linux":
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="headrace-forks-"))
    at_exit(shutil.rmtree, folder, True)
    try:
        process = _server(folder / "socket")
    except OSError:  # the path is too long for a socket
        return sys.executable
    at_exit(_end, process)
    return str(_program(folder))


def _server(place: Path) -> subprocess.Popen[bytes]:
    """Start the server. It ends when its standard input closes, and so with this process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        # A client that connects before all is loaded waits.
        listener.listen()
        return subprocess.Popen(
            # Unbuffered, as Spark starts Python.
            [sys.executable, "-u", "-m", "headrace.runtime.prefork.server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            # Threads of OpenBLAS would not survive a fork. The hash seed is Spark's default: all
            # workers hash alike.
            env={"PYTHONHASHSEED": "0", **os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )


def _program(folder: Path) -> Path:
    client = str(Path(__file__).with_name("client.py"))
    asking = [sys.executable, "-I", "-S", client, str(folder / "socket"), sys.executable]
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\ncase "$2" in\n{"|".join(FORKED)}) exec {shlex.join(asking)} "$@" ;;\n'
        f'*) exec {shlex.quote(sys.executable)} "$@" ;;\nesac\n'
    )
    program.chmod(0o700)
    return program


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
