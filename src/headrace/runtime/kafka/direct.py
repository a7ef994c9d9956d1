"""Steps that can read Kafka themselves, and what stands in the way of the others."""

from __future__ import annotations

from headrace.operators.registry import operator_of
from headrace.pipeline.stream import Stream, sources
from headrace.plan.steps import Step


def why_not_direct(step: Step) -> str | None:
    """Why a step needs the commits of a log, which Kafka lacks; None if it does not."""
    if (reason := _needs_commits(step.stream)) is not None:
        return reason
    topics = [source.topic for source in sources(step.stream)]
    rules = {topic.settings.frontier for topic in topics}
    if "punctuation" in rules or len(rules) > 1:
        return "its topics do not all tell by their rows how far time is"
    if any(topic.settings.idle is not None for topic in topics):
        return "its time goes on while a topic is idle"
    return None


def _needs_commits(stream: Stream) -> str | None:
    reasons = (operator_of(stream).needs_commits(stream), *map(_needs_commits, stream.upstream))
    return next(filter(None, reasons), None)
