"""A group's offsets on their way to the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Place = tuple[int, int]
"""A topic's number and a partition."""


@dataclass(frozen=True)
class GroupOffsets:
    """Where a group goes on: an offset by topic number and partition.

    `group` and `member` are what the log knows them by. `member` is None where nobody has to own
    the partitions, as when offsets are reset.
    """

    group: Any
    member: Any
    offsets: Mapping[Place, int]
