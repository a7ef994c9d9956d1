"""Deliveries: the outcome of sent records."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import HeadraceError
from headrace.log.pending import Taken
from headrace.log.roles import Delivery
from headrace.log.state import Receipt


class Outcome(Delivery):
    """A receipt or an error, once known. `wait` calls `hurry` to have the commit made now."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self.receipt: Receipt | None = None
        self.error: HeadraceError | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None

    def wait(self) -> Receipt:
        if not self.done:
            self._hurry()
        if self.error is not None:
            raise self.error
        return self.receipt or Receipt(None, 0, ())

    def end(self, receipt: Receipt | None, error: HeadraceError | None) -> None:
        """Set the outcome."""
        self.receipt, self.error = receipt, error


class Sent(Outcome):
    """A batch of sent records of any topics. Every `send` into it returns it."""

    def __init__(self, flush: Callable[[Outcome], None]) -> None:
        super().__init__(lambda: flush(self))
        self.taken: list[Taken] = []
        self.size = 0
        self.sequence: int | None = None
        self.refused: HeadraceError | None = None
        """The reason why some of its records cannot be committed. The others can."""

    def end(self, receipt: Receipt | None, error: HeadraceError | None) -> None:
        super().end(receipt, error)
        self.taken = []


class Either(Delivery):
    """A record in one of two batches; it is unknown which, so both must be committed."""

    def __init__(self, one: Sent, other: Sent) -> None:
        self._one, self._other = one, other

    @property
    def done(self) -> bool:
        return self._one.done and self._other.done

    def wait(self) -> Receipt:
        first, second = self._one.wait(), self._other.wait()
        return second if second.acks else first
