"""Spark's counters of the rows that steps remove and add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame


@dataclass
class Counters:
    """The names of Spark's counters, by what they count."""

    filtered: list[str] = field(default_factory=list)
    exploded: list[str] = field(default_factory=list)
    paired: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Counters of rows that are not too late."""
    late: list[str] = field(default_factory=list)
    """Counters of rows that are too late, if nothing else counts them."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.filtered, *self.exploded, *self.paired, *self.taken, *self.late)

    def name(self, kind: list[str], what: str) -> str:
        kind.append(f"{what}-{len(kind)}")
        return kind[-1]

    def __bool__(self) -> bool:
        return bool(self.all)


def observed(frame: DataFrame, names: Sequence[str]) -> dict[str, int]:
    """The values of counters in a frame that was computed."""
    return observed_by(frame._jdf.queryExecution(), names) if names else {}


def observed_by(execution: Any, names: Sequence[str]) -> dict[str, int]:
    """The values of counters in a finished execution of Spark."""
    metrics = execution.observedMetrics()
    found = {}
    for name in names:
        row = metrics.get(name)
        value = row.get().get(0) if row.isDefined() else None
        found[name] = int(value) if value is not None else 0
    return found
