"""How a step is run: as a stream of Spark, or in rounds of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.engine.crash import Reach
from headrace.engine.dedup import Deduplicating
from headrace.engine.enriching import Enriching
from headrace.engine.frames import Portions
from headrace.engine.query import Query
from headrace.engine.rounds import Rounds
from headrace.engine.steps import Step
from headrace.log import Log

RunningStep = Query | Rounds

DISTINCT_ROWS = 500_000
"""So many rows of a round are held in memory at once to find duplicates among them."""


def query_of(
    spark: SparkSession,
    log: Log,
    step: Step,
    checkpoint: Path,
    *,
    portions: Portions | None,
    reach: Reach,
    clock: Clock,
) -> RunningStep:
    """What runs a step."""
    if step.enriched is not None:
        plan = Enriching(spark, log, step)
        return Rounds(spark, log, step, plan, portions=portions, reach=reach, clock=clock)
    if step.deduplicated is not None:
        usual = portions or Portions()
        portions = replace(usual, max_rows=min(usual.max_rows, DISTINCT_ROWS))
        distinct = Deduplicating(spark, log, step)
        return Rounds(spark, log, step, distinct, portions=portions, reach=reach, clock=clock)
    return Query(spark, log, step, checkpoint, portions=portions, reach=reach)
