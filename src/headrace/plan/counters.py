"""Spark's counters of the rows that steps remove and add."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

Kind = Literal["filtered", "exploded", "paired", "taken", "dead_from", "dead_upto"]


@dataclass
class Counters:
    """The names of Spark's counters, by the rows that they count."""

    filtered: list[str] = field(default_factory=list)
    exploded: list[str] = field(default_factory=list)
    paired: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Counters of rows that are not too late."""
    dead_from: list[str] = field(default_factory=list)
    """The first commits that have rows which a step refuses."""
    dead_upto: list[str] = field(default_factory=list)
    """The last commits that have such rows."""

    @property
    def all(self) -> tuple[str, ...]:
        counted = (*self.filtered, *self.exploded, *self.paired, *self.taken)
        return (*counted, *self.dead_from, *self.dead_upto)

    def __bool__(self) -> bool:
        return bool(self.all)

    def watch(self, rows: DataFrame, name: str, number: Column) -> DataFrame:
        """Let Spark compute a number over rows as they pass, under a name."""
        return rows.observe(name, number)


@dataclass
class Observations(Counters):
    """Counters of a frame that is not a stream, whatever is computed from it."""

    _made: dict[str, Observation] = field(default_factory=dict)

    def watch(self, rows: DataFrame, name: str, number: Column) -> DataFrame:
        self._made[name] = Observation(f"headrace-{uuid.uuid4()}")
        return rows.observe(self._made[name], number)

    def values(self) -> dict[str, int]:
        """Their values, once the frame is computed."""
        return {name: int(made.get["n"] or 0) for name, made in self._made.items()}


def counted(
    rows: DataFrame, counters: Counters | None, kind: Kind, number: Column | None = None
) -> DataFrame:
    """Let Spark count rows, or some `number` over them, in a new counter of a kind."""
    if counters is None:
        return rows
    names: list[str] = getattr(counters, kind)
    names.append(f"{kind}-{len(names)}")
    number = F.count(F.lit(1)) if number is None else number
    return counters.watch(rows, names[-1], number.alias("n"))


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
