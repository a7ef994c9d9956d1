"""Asks for a fork of a Python that has loaded what it needs, and lives as long as that does.

    python -I -S launch.py SOCKET PYTHON WORDS...

If nobody answers, it becomes `PYTHON WORDS...` itself. It stands in Python's place, so it loads
next to nothing.
"""

import json
import os
import signal
import socket
import struct
import sys

LENGTH = struct.Struct("!I")


def ask(line: socket.socket, place: str, words: tuple[str, ...]) -> int:
    """The number of the process that was forked."""
    line.connect(place)
    wish = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(wish).encode()
    socket.send_fds(line, [LENGTH.pack(len(text))], [1, 2])
    line.sendall(text)
    answer = line.recv(LENGTH.size)
    if len(answer) < LENGTH.size:
        raise ConnectionError("nobody answers")
    return int(LENGTH.unpack(answer)[0])


def main(place: str, python: str, *words: str) -> None:
    """Have `words` run by a fork, or by Python."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            process = ask(line, place, words)
        except OSError:
            os.execv(python, [python, *words])
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
        line.recv(1)  # which nobody sends: it ends when the process does


if __name__ == "__main__":
    main(*sys.argv[1:])
