"""What became of the rows of a batch that Spark does not count, and how far time has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.compile import windows_per_row
from headrace.plan.counters import Counters
from headrace.plan.law import Law
from headrace.plan.reads import branches
from headrace.plan.steps import Step
from headrace.plan.uncounted import Aside


@dataclass(frozen=True)
class Account:
    """Of a batch: its rows by topic, what was set aside of them, and the late ones.

    `made` is when the batch was, where the log has no commits that could tell.
    """

    rows: Mapping[str, int]
    aside: Mapping[str, Aside]
    late: pa.Table | None
    frontier: int | None
    made: int | None = None

    @property
    def dead(self) -> pa.Table | None:
        """The dead letters, if there are any."""
        found = [batch for aside in self.aside.values() for batch in aside.dead]
        return pa.Table.from_batches(found) if found else None

    def law(self, step: Step, counters: Counters, observed: Mapping[str, int]) -> Law:
        """What is known of the rows before a sink has them. `observed` is what Spark counted."""
        ways = branches(step.computed)
        living = {
            topic: rows - self.aside[topic].dead_rows - self.aside[topic].tombstones
            for topic, rows in self.rows.items()
        }
        law = Law(
            rows=sum(self.rows.values()),
            tombstones=sum(found.tombstones for found in self.aside.values()),
            dead=sum(found.dead_rows for found in self.aside.values()),
            filtered=sum(observed[name] for name in counters.filtered),
            exploded=sum(observed[name] for name in counters.exploded)
            + sum(rows * (ways[topic] - 1) for topic, rows in living.items()),
            late=self.late.num_rows if self.late is not None else 0,
        )
        per_row = windows_per_row(step.aggregation) if step.aggregation is not None else 1
        if per_row is None:
            pairs = sum(observed[name] for name in counters.paired)
        else:
            pairs = law.passed * per_row
        return law + Law(pairs=pairs)
