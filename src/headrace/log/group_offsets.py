"""Offsets that a group commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Place = tuple[int, int]
"""A topic's id and a partition."""


@dataclass(frozen=True)
class GroupOffsets:
    """A group's next offsets, by topic id and partition.

    `group` and `member` are the log's own ids of them. `member` is None if no member has to own
    the partitions, as when offsets are reset.
    """

    group: Any
    member: Any
    offsets: Mapping[Place, int]
