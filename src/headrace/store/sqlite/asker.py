"""The asker of queries: starts the process that answers them, and kills one that hangs."""

from __future__ import annotations

import contextlib
import marshal
import os
import subprocess
import sys
from multiprocessing.connection import wait

from headrace.store.sqlite import query_process
from headrace.store.sqlite.query_process import Answer, Question, refusal, too_long, too_much

_GRACE = 2.0
"""Seconds that a query may take to stop by itself when its time is up."""


class Asker:
    """The process, started when it is first asked. Used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def ask(self, question: Question) -> Answer:
        """Answer a query, or refuse it if it takes too long or too much."""
        seconds = question["seconds"]
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(marshal.dumps(question))
            process.stdin.flush()
            patience = None if seconds is None else seconds + _GRACE
            if not wait([process.stdout.fileno()], patience):  # select() ends at 1,024 open files
                self.close()
                return refusal(too_long(seconds))
            answer: Answer = marshal.load(process.stdout)
            return answer
        except (EOFError, BrokenPipeError):
            self.close()
            return refusal(too_much())
        except ValueError as error:
            return {"message": f"A value cannot be given to SQLite: {error}", "hint": "Cast it"}
        except BaseException:  # such as Ctrl-C: the next question must not get this answer
            self.close()
            raise

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._pid == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._pid != os.getpid():  # the process is the parent's
            self._process, self._pid = None, os.getpid()
        if self._process is None:
            found = os.pathsep.join(path for path in sys.path if path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", query_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": found},
            )
            assert self._process.stdout is not None
            self._process.stdout.read(1)  # it is ready, and no query pays for its start
        return self._process
