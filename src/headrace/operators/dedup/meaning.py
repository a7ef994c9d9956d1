"""Reference semantics of deduplication, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import micros
from headrace.operators.dedup.declare import Deduplicated
from headrace.oracle.events import Event
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.rows import Fates, Row, rows_of, watermark_of


@dataclass
class Group:
    """A group of duplicates: the event time of its first row, and the row to keep."""

    opened: int
    kept: Row


@dataclass
class Distinct(Fates):
    """The emitted rows in order, and the fate of every other row."""

    rows: list[Row] = field(default_factory=list)
    late: list[tuple[Event, Row, int]] = field(default_factory=list)
    """Late rows with the watermark at their arrival."""
    duplicates: int = 0
    without_key: int = 0
    waiting: int = 0
    """Groups whose last row is not known yet."""


def distinct(
    step: Deduplicated, events: Iterable[Event], frontiers: dict[str, int | None]
) -> Distinct:
    """The rows of a stream without duplicates, at the given frontier of each topic.

    A row joins the group of its key that was opened less than `ttl` before it or at its own time,
    else the group that was opened less than `ttl` after it, else it opens one. So two groups of a
    key are at least `ttl` apart, and a row has at most one candidate in either direction. Once the
    watermark is `ttl` past its opening, a group is closed: a row that would join it is late.
    """
    found = Distinct()
    ttl, delay = micros(step.ttl), micros(step.delay)
    groups: dict[tuple[Any, ...], list[Group]] = {}
    ordered = sorted(events, key=lambda e: (e.commit, e.topic.name, e.partition, e.offset))
    for event, moment in found.living(ordered):
        for row in rows_of(step.input, event):
            if event.frontier is not None and moment + delay <= event.frontier:
                found.late.append((event, row, event.frontier - delay))
                continue
            key = tuple(row[name] for name in step.by)
            if None in key:
                found.without_key += 1
                found.rows.append(row)
                continue
            mine = groups.setdefault(key, [])
            group = _group_of(moment, mine, ttl)
            if group is not None:
                found.duplicates += 1
                if step.keep == "last":
                    group.kept = row
                continue
            mine.append(Group(moment, row))
            if step.keep == "first":
                found.rows.append(row)
    if step.keep == "last":
        closed = watermark_of(step, frontiers, step.delay)
        every = [group for mine in groups.values() for group in mine]
        over = [g for g in every if closed is not None and g.opened + ttl <= closed]
        found.rows += [group.kept for group in over]
        found.waiting = len(every) - len(over)
    return found


def shown(step: Deduplicated, excerpt: Excerpt) -> list[Row]:
    """The rows without duplicates."""
    return distinct(step, excerpt.events, excerpt.frontiers).rows


def _group_of(moment: int, groups: list[Group], ttl: int) -> Group | None:
    """The group of a row with this event time, if there is one."""
    after = [group for group in groups if group.opened <= moment < group.opened + ttl]
    before = [group for group in groups if moment < group.opened < moment + ttl]
    assert len(after) <= 1, "no two groups are so near"
    assert len(before) <= 1, "no two groups are so near"
    return next(iter(after + before), None)
