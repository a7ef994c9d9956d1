"""The row counters of a real-time query, and the row law that they have to satisfy.

Each term is counted at a different place: rows by the source, tombstones where they are dropped,
filters and explodes at each of them, and the rest at the end. A batch in which the terms do not add
up stops the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import LawBroken
from headrace.plan import metadata
from headrace.plan.counters import Counters
from headrace.plan.law import Law

_JUDGED = "judged"


class Counting:
    """The counters of one query."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._read: list[str] = []

    def read(self, records: DataFrame) -> DataFrame:
        """Count the tombstones among records of a topic."""
        self._read.append(f"read-{len(self._read)}")
        tombstones = F.count_if(F.col("value").isNull()).alias("n")
        return records.observe(self._read[-1], tombstones)

    def judged(self, rows: DataFrame, late: Column) -> DataFrame:
        """Count dead letters, late rows and counted rows."""
        dead = F.col(metadata.BESIDE).isNotNull()
        return rows.observe(
            _JUDGED,
            F.count_if(dead).alias("dead"),
            F.count_if(~dead & late).alias("late"),
            F.count_if(~dead & ~late).alias("counted"),
        )

    def law(self, progress: Mapping[str, Any]) -> Law:
        """The row law of a batch, from Spark's progress report."""
        observed = progress.get("observedMetrics") or {}

        def total(names: list[str]) -> int:
            return sum(int(observed.get(name, {}).get("n") or 0) for name in names)

        judged = observed.get(_JUDGED, {})
        dead, late, counted = (int(judged.get(n) or 0) for n in ("dead", "late", "counted"))
        return Law(
            rows=sum(source["numInputRows"] for source in progress["sources"]),
            tombstones=total(self._read),
            dead=dead,
            filtered=total(self.counters.filtered),
            exploded=total(self.counters.exploded),
            pairs=late + counted,
            counted=counted,
            late=late,
        )


def check(step: str, law: Law, progress: Mapping[str, Any]) -> None:
    """Raise unless every row of a batch is accounted for and Spark dropped none."""
    if law.pairs != law.passed:
        raise LawBroken(
            f"Step {step!r} cannot account for every row: {law}",
            hint="This is a bug of headrace. Please report it, with the pipeline",
        )
    for operator in progress.get("stateOperators", ()):
        if dropped := operator["numRowsDroppedByWatermark"]:
            raise LawBroken(
                f"Spark dropped {dropped:,} rows of step {step!r} as late that were not late",
                hint="The clock of this machine was set back by more than a minute, or this is a "
                "bug of headrace. Then please report it, with the pipeline",
            )
