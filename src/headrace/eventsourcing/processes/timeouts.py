"""Time-outs that are not due yet, in event time."""

from __future__ import annotations

import heapq


class Timeouts:
    """The time-outs of all instances, by when they are due, in microseconds."""

    def __init__(self) -> None:
        self._due: dict[str, dict[str, int]] = {}
        self._heap: list[tuple[int, str, str]] = []

    def of(self, instance: str) -> dict[str, int]:
        """The time-outs of an instance."""
        return dict(self._due.get(instance, {}))

    def set(self, instance: str, name: str, due: int) -> None:
        """Set a time-out, or set it again."""
        self._due.setdefault(instance, {})[name] = due
        heapq.heappush(self._heap, (due, instance, name))

    def cancel(self, instance: str, name: str) -> None:
        """Cancel a time-out, if it is there."""
        mine = self._due.get(instance, {})
        mine.pop(name, None)
        if not mine:
            self._due.pop(instance, None)

    def replace(self, instance: str, timeouts: dict[str, int]) -> None:
        """Replace all time-outs of an instance."""
        self._due.pop(instance, None)
        for name, due in timeouts.items():
            self.set(instance, name, due)

    def take(self, upto: int) -> tuple[int, str, str] | None:
        """Take the first that is due at a moment: when it was due, its instance and its name."""
        while self._heap and self._heap[0][0] <= upto:
            due, instance, name = heapq.heappop(self._heap)
            if self._due.get(instance, {}).get(name) == due:
                self.cancel(instance, name)
                return due, instance, name
        return None
