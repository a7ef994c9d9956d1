"""The runner of a step: a streaming query of Spark, or rounds of our own."""

from __future__ import annotations

from headrace.clock import Clock
from headrace.operators.registry import operator_of
from headrace.plan.crash_points import CrashPoint
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.source_options import BatchLimits
from headrace.runtime.query import Query
from headrace.runtime.rounds import Rounds

RunningStep = Query | Rounds


def query_of(
    job: Job,
    *,
    batch_limits: BatchLimits | None,
    crash_point: CrashPoint,
    clock: Clock | None = None,
    name: str | None = None,
) -> RunningStep:
    """Make the runner of a step. Its name has to be unique among running queries."""
    plan = operator_of(job.step.stream).plan(job)
    if isinstance(plan, RoundPlan):
        return Rounds(
            job, plan, batch_limits=batch_limits, crash_point=crash_point, clock=clock, name=name
        )
    return Query(job, plan, batch_limits=batch_limits, crash_point=crash_point, name=name)
