"""Cursors: where the next page of a topic's records starts, in an address."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from headrace.errors import InvalidPosition
from headrace.log import Capability, Commit, Log, TopicState

Range = tuple[int, int]
"""Offsets, the second not included."""


@dataclass(frozen=True)
class Cursor:
    """The start of the next page, by partition; the others end at the commit `pinned`."""

    bounds: dict[int, int] = field(default_factory=dict)
    pinned: int | None = None

    @classmethod
    def parse(cls, text: str) -> Cursor:
        if not text:
            return cls()
        found = re.fullmatch(
            r"(?:c(\d{1,18})\.)?((?:\d{1,9}-\d{1,18})(?:_\d{1,9}-\d{1,18})*)", text
        )
        if found is None:
            raise InvalidPosition(f"{text!r} is not a cursor", hint="Follow the links of the page")
        pairs = (each.split("-") for each in found[2].split("_"))
        bounds = {int(partition): int(offset) for partition, offset in pairs}
        return cls(bounds, None if found[1] is None else int(found[1]))

    def __str__(self) -> str:
        pinned = "" if self.pinned is None else f"c{self.pinned}."
        return pinned + "_".join(f"{p}-{offset}" for p, offset in sorted(self.bounds.items()))

    def moved(self, log: Log, bounds: dict[int, int]) -> Cursor:
        pinned = self.pinned
        if pinned is None and Capability.NUMBERED_APPENDS in log.capabilities:
            pinned = log.head()
        return replace(self, bounds=self.bounds | bounds, pinned=pinned)

    def applied(
        self, log: Log, state: TopicState, ranges: dict[int, Range], *, ascending: bool
    ) -> dict[int, Range]:
        if not self.bounds:
            return ranges
        found = {}
        for partition, (low, high) in ranges.items():
            bound = self.bounds.get(partition)
            if bound is None and self.pinned is not None and not ascending:
                bound = log.offset_at(state.topic.name, partition, Commit(self.pinned))
            if bound is None:
                found[partition] = (low, high)
            elif ascending:
                found[partition] = (max(low, bound), high)
            else:
                found[partition] = (low, min(high, bound))
        return found
