"""Named points in a batch, so that a test can kill the process at each."""

from __future__ import annotations

from collections.abc import Callable

CrashPoint = Callable[[str], None]
"""Called with the name of each point as it is reached."""

POINTS = (
    "batch began",
    "computed",
    "set aside",
    "stored panes",
    "stored outputs",
    "before commit",
    "committed",
    "before sending",
    "sent",
    "batch ended",
)
"""In the order of a batch. `sent` is after each output has been written to its topic."""

REBUILD_POINTS = (
    "built",
    "before switch",
    "switched",
    "checkpoint removed",
    "checkpoint moved",
    "place cleared",
    "switch finished",
)
"""In the order of a rebuild. While it builds, the points of its batches are reached as well."""


def nothing(point: str) -> None:
    """Do nothing at a point: the default outside of tests."""
