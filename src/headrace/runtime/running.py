"""How a step is run: as a streaming query of Spark, or in rounds of our own."""

from __future__ import annotations

import importlib

from headrace.clock import Clock
from headrace.errors import Unsupported
from headrace.log import Capability
from headrace.operators.registry import operator_of
from headrace.plan.crash_points import CrashPoint
from headrace.plan.round_plan import RoundPlan
from headrace.plan.source_options import BatchLimits
from headrace.plan.stream_plan import Job
from headrace.runtime.kafka.direct import why_not_direct
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
    """The runner of a step, under a name of its own if it has to be told from others."""
    log, step = job.log, job.step
    kind: type[Query] = Query
    if Capability.COMMITS not in log.capabilities:
        if (reason := why_not_direct(step)) is not None:
            raise Unsupported(
                f"Step {step.name!r} cannot read the log at {log.url} itself: {reason}",
                hint=f"Use an embedded log (file:./data). See {step.stream.where}",
            )
        # Kafka's client is not installed everywhere: only who has a log on Kafka loads it.
        kind = importlib.import_module("headrace.runtime.kafka.query").KafkaQuery
    plan = operator_of(step.stream).plan(job)
    if isinstance(plan, RoundPlan):
        return Rounds(
            job, plan, batch_limits=batch_limits, crash_point=crash_point, clock=clock, name=name
        )
    return kind(job, plan, batch_limits=batch_limits, crash_point=crash_point, name=name)
