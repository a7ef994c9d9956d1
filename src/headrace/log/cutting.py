"""The thread that makes commits of new records, in a log whose appends make none."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headrace.clock import SECOND
from headrace.errors import Retryable, UnknownTopic
from headrace.log.interface import Log

_PAUSE = SECOND // 10
"""The least time between two commits, unless one has as many records as it may have."""
_AFTER_FAILURE = SECOND // 2


class Cutting:
    """Cuts some topics of a log, from its start until it is stopped."""

    def __init__(self, log: Log, topics: Iterable[str], rows: int) -> None:
        self._log = log
        self._rows = rows
        self._topics = tuple(sorted(set(topics)))
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Start in the background."""
        self._thread = threading.Thread(target=self._run, name="headrace-cutting", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise the error that ended it, if any."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._log.cut_on(self._topics, rows=self._rows):
                    self._stopped.wait(_PAUSE / SECOND)
            except (Retryable, UnknownTopic):
                # The step that reads a topic that is gone says so itself.
                self._stopped.wait(_AFTER_FAILURE / SECOND)
            except Exception as error:  # `check` raises it
                self._error = error
                return
