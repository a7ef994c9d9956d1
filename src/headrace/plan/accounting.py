"""The account of a batch: the terms of the conservation law that are known before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.pipeline.row_steps import branches
from headrace.pipeline.stream import Stream
from headrace.plan.counters import Counters
from headrace.plan.law import Law
from headrace.plan.uncounted import Uncounted


@dataclass(frozen=True)
class Account:
    """The rows of a batch by topic, and those that are not counted."""

    rows: Mapping[str, int]
    uncounted: Mapping[str, Uncounted]
    late: pa.Table | None
    frontier: int | None

    @property
    def dead(self) -> pa.Table | None:
        """The dead letters, if there are any."""
        return all_dead(self.uncounted)


def all_dead(uncounted: Mapping[str, Uncounted], *more: pa.Table | None) -> pa.Table | None:
    """All dead letters of a batch, if there are any."""
    found = [letters for part in uncounted.values() for letters in part.dead]
    found += [table for table in more if table is not None]
    return pa.concat_tables(found) if found else None


def terms(
    stream: Stream,
    rows: Mapping[str, int],
    uncounted: Mapping[str, Uncounted],
    counters: Counters | None = None,
    counted: Mapping[str, int] | None = None,
    waiting: Mapping[str, int] | None = None,
) -> Law:
    """The terms of the law for the rows that a stream reads, by topic.

    `counted` are the values of Spark's counters, `waiting` the rows of each topic that began to
    wait.
    """
    counted, waiting, ways = counted or {}, waiting or {}, branches(stream)
    living = {
        topic: count
        - uncounted[topic].dead_rows
        - uncounted[topic].tombstones
        - waiting.get(topic, 0)
        for topic, count in rows.items()
    }
    return Law(
        rows=sum(rows.values()),
        tombstones=sum(part.tombstones for part in uncounted.values()),
        dead=sum(part.dead_rows for part in uncounted.values()),
        filtered=sum(counted[name] for name in counters.filtered) if counters else 0,
        exploded=(sum(counted[name] for name in counters.exploded) if counters else 0)
        + sum(count * (ways.get(topic, 1) - 1) for topic, count in living.items())
        + sum(part.unevenly for part in uncounted.values()),
        waiting=sum(waiting.values()),
    )


def law_of(
    stream: Stream,
    account: Account,
    counters: Counters,
    observed: Mapping[str, int],
    windows_per_row: int | None,
) -> Law:
    """The terms of the law of a batch that are known before it is stored."""
    law = terms(stream, account.rows, account.uncounted, counters, observed)
    law += Law(late=account.late.num_rows if account.late is not None else 0)
    if windows_per_row is None:
        return law + Law(pairs=sum(observed[name] for name in counters.paired))
    return law + Law(pairs=law.passed * windows_per_row)
