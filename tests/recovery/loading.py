"""A load of random transactions on the tables of a database, beside a test."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod


class Loading(ABC):
    """Transactions of a seed. A server that is away is waited for."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._next = 10_000
        self._thread: threading.Thread | None = None

    @abstractmethod
    def run(self, transactions: int) -> None:
        """Run so many transactions."""

    def start(self, transactions: int) -> None:
        """Run so many transactions beside the test."""
        self._thread = threading.Thread(target=self.run, args=(transactions,))
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def join(self) -> None:
        """Wait for their end."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _new(self, count: int = 1) -> int:
        """The first of so many keys that no row has had."""
        self._next += count
        return self._next - count
