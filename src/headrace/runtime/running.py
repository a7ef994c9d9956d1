"""How a step is run: as a stream of Spark, or in rounds of our own."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import Unsupported
from headrace.log import Capability, Log
from headrace.operators.dedup.spark import Deduplicating
from headrace.operators.table_join.spark import ROUND_ROWS, TableJoining
from headrace.operators.table_lookup.spark import Enriching
from headrace.plan.crash_points import Reach
from headrace.plan.staging import staging_of
from headrace.plan.steps import Step
from headrace.runtime.frames import Portions
from headrace.runtime.kafka.direct import why_not_direct
from headrace.runtime.query import Query
from headrace.runtime.rounds import Plan, Rounds

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
    clock: Clock | None = None,
    name: str | None = None,
) -> RunningStep:
    """What runs a step, under a name of its own if it has to be told from others."""
    portions = portions or Portions()
    if Capability.COMMITS not in log.capabilities:
        if (reason := why_not_direct(step)) is not None:
            raise Unsupported(
                f"Step {step.name!r} cannot read the log at {log.url} itself: {reason}",
                hint=f"Use an embedded log (file:./data). See {step.stream.where}",
            )
        query: Query = _kafka_query()(
            spark, log, step, checkpoint, portions=portions, reach=reach, name=name
        )
        return query
    plan: Plan | None = None
    if step.enriched is not None:
        plan = Enriching(spark, log, step, staging_of(checkpoint))
    elif step.table_join is not None:
        plan = TableJoining(spark, log, step)
        portions = replace(portions, max_rows=min(portions.max_rows, ROUND_ROWS))
    elif step.deduplicated is not None:
        plan = Deduplicating(spark, log, step)
        portions = replace(portions, max_rows=min(portions.max_rows, DISTINCT_ROWS))
    if plan is not None:
        return Rounds(
            spark, log, step, plan, portions=portions, reach=reach, clock=clock, name=name
        )
    return Query(spark, log, step, checkpoint, portions=portions, reach=reach, name=name)


def _kafka_query() -> type[Query]:
    """Kafka's client is not installed everywhere: only who has a log on Kafka loads it."""
    found: type[Query] = importlib.import_module("headrace.runtime.kafka.query").KafkaQuery
    return found
