"""The runner of a step: a streaming query of Spark, or rounds of our own."""

from __future__ import annotations

import importlib

from headrace.clock import Clock
from headrace.errors import Unsupported
from headrace.log import Capability
from headrace.operators.registry import operator_of
from headrace.pipeline.stream import Stream, sources
from headrace.plan.crash_points import CrashPoint
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import Step
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
    log, step = job.log, job.step
    kind: type[Query] = Query
    if Capability.COMMITS not in log.capabilities:
        if (reason := why_not_direct(step)) is not None:
            raise Unsupported(
                f"Step {step.name!r} cannot read the log at {log.url} itself: {reason}",
                hint=f"Use an embedded log (file:./data). See {step.stream.where}",
            )
        # Kafka's client is optional, so it is imported only for a log on Kafka.
        kind = importlib.import_module("headrace.runtime.kafka.query").KafkaQuery
    plan = operator_of(step.stream).plan(job)
    if isinstance(plan, RoundPlan):
        return Rounds(
            job, plan, batch_limits=batch_limits, crash_point=crash_point, clock=clock, name=name
        )
    return kind(job, plan, batch_limits=batch_limits, crash_point=crash_point, name=name)


def why_not_direct(step: Step) -> str | None:
    """The reason why a step cannot read Kafka, which has no commits; None if it can."""
    if (reason := _needs_commits(step.stream)) is not None:
        return reason
    topics = [source.topic for source in sources(step.stream)]
    rules = {topic.settings.frontier for topic in topics}
    if "punctuation" in rules or len(rules) > 1:
        return "its topics need the same frontier setting, events or arrival"
    if any(topic.settings.idle is not None for topic in topics):
        return "a topic has the setting idle, which needs heartbeats in the log"
    return None


def _needs_commits(stream: Stream) -> str | None:
    reasons = (operator_of(stream).needs_commits(stream), *map(_needs_commits, stream.upstream))
    return next(filter(None, reasons), None)
