"""Python processes for Spark, forked from one that has loaded all they need.

For each streaming query that reads the log Spark starts a Python of its own, and gives it ten
seconds to answer. To load pyspark and headrace takes it a second of a core, and many at once do not
make it. So one process loads them, once, and is forked whenever Spark asks for such a Python. What
Spark is told to be Python is a program that asks for a fork, and is Python for all else: and for
everything, if nobody answers.
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
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""What Spark starts a Python for with every query; its other Pythons it forks itself."""

_PATIENCE = 5.0
"""Seconds in which it should end, which it does at once if it has loaded everything."""


@functools.cache
def python() -> str:
    """What is to be taken for Python by Spark, for as long as this process lives."""
    if sys.platform != "linux":
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="headrace-forks-"))
    at_exit(shutil.rmtree, folder, True)
    try:
        process = _server(folder / "socket")
    except OSError:  # a path that is too long for a socket
        return sys.executable
    at_exit(_end, process)
    return str(_program(folder))


def _server(place: Path) -> subprocess.Popen[bytes]:
    """What is forked. It ends when its standard input does, and so with this process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        # Who asks before all is loaded waits: the socket is there already.
        listener.listen()
        return subprocess.Popen(
            # Without buffers for what is printed, as Spark wants its Pythons.
            [sys.executable, "-u", "-m", "headrace.runtime.prefork.server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            # Threads that compute with matrices would not live on in a fork.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )


def _program(folder: Path) -> Path:
    launch = str(Path(__file__).with_name("client.py"))
    asking = [sys.executable, "-I", "-S", launch, str(folder / "socket"), sys.executable]
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
