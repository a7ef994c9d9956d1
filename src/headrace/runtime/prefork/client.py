"""Ask the prefork server for a fork, and live as long as the fork does.

    python -I -S client.py SOCKET PYTHON WORDS...

If the server does not answer, it becomes `PYTHON WORDS...` itself. Spark starts it in place of
Python, so it imports very little.
"""

import json
import os
import signal
import socket
import struct
import sys

LENGTH = struct.Struct("!I")


def ask(line: socket.socket, place: str, words: tuple[str, ...]) -> int:
    """Return the process id of the fork."""
    line.connect(place)
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    socket.send_fds(line, [LENGTH.pack(len(text))], [0, 1, 2])
    line.sendall(text)
    answer = line.recv(LENGTH.size)
    if len(answer) < LENGTH.size:
        raise ConnectionError("no answer")
    return int(LENGTH.unpack(answer)[0])


def main(place: str, python: str, *words: str) -> None:
    """Run `words` in a fork, or in Python."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            process = ask(line, place, words)
        except OSError:
            os.execv(python, [python, *words])
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
        line.recv(1)  # returns when the process ends: nothing is ever sent


if __name__ == "__main__":
    main(*sys.argv[1:])
