"""Forked child processes in tests, and their answers."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.waiting import left


class Child:
    """A forked process that runs a function, with a pipe to the parent.

    The function gets the child's end of the pipe. Its return value is the last message.
    """

    def __init__(self, work: Callable[[multiprocessing.connection.Connection], Any]) -> None:
        self._line, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=_run, args=(work, theirs), daemon=True
        )
        self.process.start()
        theirs.close()

    def say(self, word: Any) -> None:
        self._line.send(word)

    def hear(self) -> Any:
        """The next message of the child. An exception in the child is raised here."""
        if not self._line.poll(left()):
            self.process.kill()
            raise TimeoutError("the child hangs")
        word = self._line.recv()
        if isinstance(word, BaseException):
            raise word
        return word

    def end(self) -> Any:
        """The last message of the child, after it has ended."""
        word = self.hear()
        self.process.join(left())
        assert self.process.exitcode == 0
        return word


def _run(
    work: Callable[[multiprocessing.connection.Connection], Any],
    line: multiprocessing.connection.Connection,
) -> None:
    try:
        line.send(work(line))
    except BaseException as error:
        traceback.print_exc()
        line.send(error)
    line.close()
    os._exit(0)


def in_child(work: Callable[[], Any]) -> Any:
    """The result of a function in a forked child, or its exception."""
    return Child(lambda _: work()).end()
