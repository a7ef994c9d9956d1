"""Check, before Spark starts, that steps can run in real time."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import InvalidPipeline
from headrace.operators.contract import IN_BATCHES
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.pipeline.row_steps import branches
from headrace.pipeline.stream import Stream
from headrace.pipeline.where import Where
from headrace.plan.steps import Step, steps_of


@dataclass(frozen=True)
class Reason:
    """The reason why a step cannot run in real time, the advice, and the source line."""

    why: str
    instead: str
    where: Where


def check_real_time(app: App, log: str, *, until_caught_up: bool = False) -> list[Step]:
    """Return the steps of an application; raise unless all can run in real time on the log."""
    steps = steps_of(app)
    if until_caught_up:
        raise InvalidPipeline(
            f"Application {app.name!r} runs in real time, so it does not end by itself",
            hint="Stop it at any time, or let it catch up in micro-batches",
        )
    if not log.startswith("kafka:"):
        raise InvalidPipeline(
            f"Application {app.name!r} cannot run in real time on {log}: Spark reads row by row "
            "from a Kafka broker only",
            hint="headrace kafka up starts a broker, and --log kafka://HOST:PORT names it. "
            "With --latency micro-batch it runs on this log",
        )
    for step in steps:
        if (reason := why_not_real_time(step)) is not None:
            raise refused(step.name, reason)
    return steps


def refused(step: str, reason: Reason) -> InvalidPipeline:
    """The error for a step that cannot run in real time."""
    return InvalidPipeline(
        f"Step {step!r} cannot run in real time: {reason.why}",
        hint=f"{reason.instead}. See {reason.where}",
    )


def why_not_real_time(step: Step) -> Reason | None:
    """The reason why a step cannot run in real time; None if it can."""
    if step.view is not None:
        return Reason(
            "a view is stored batch by batch",
            f"app.publish(...) writes to a topic as rows come. {IN_BATCHES}",
            step.view.where,
        )
    if step.passes_on is not None:
        return Reason(
            "another step reads its results, which are passed on batch by batch",
            f"app.publish(...) them to a topic, and read that in another application. {IN_BATCHES}",
            step.stream.where,
        )
    for topic, ways in branches(step.stream).items():
        if ways > 1:
            return Reason(
                f"it reads {topic!r} {ways} times, and Spark can read it once",
                "Let one step do it, or publish each by itself",
                step.stream.where,
            )
    if len(step.late) > 1:
        return Reason(
            f"its late rows go to {len(step.late)} topics, and only one is possible",
            "Publish them once",
            step.stream.where,
        )
    return _why_not(step.stream)


def _why_not(stream: Stream) -> Reason | None:
    if (refusal := operator_of(stream).refuses_real_time(stream)) is not None:
        return Reason(*refusal, stream.where)
    return next(filter(None, map(_why_not, stream.upstream)), None)
