"""Rows that are gone before a step has read them: it stops there, and says what can be done."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engine.position import Position
from headrace.errors import LogUnavailable, PipelineError, UnknownTopic
from headrace.log import Log

_CHOICES = (
    "headrace run --fresh computes everything anew, from the rows that are still there",
    "If they are kept elsewhere, put them into another topic and run the pipeline on that",
    "Let the topic keep rows for longer than a pipeline may stand still: retention",
)


def gap_in(log: Log, step: str, reached: Mapping[str, Position]) -> PipelineError | None:
    """What is missing between what a step has read and what its topics have; None if nothing."""
    try:
        for topic, position in reached.items():
            for state in log.topic(topic).partitions:
                if state.partition >= len(position.offsets):
                    continue  # it was added since, and is read from its beginning
                read = position.offsets[state.partition]
                if state.first > read:
                    return _gone(step, topic, state.partition, read, state.first)
                if state.end < read:
                    return _another(step, topic, state.partition, read, state.end)
    except UnknownTopic as error:
        return PipelineError(
            f"Step {step!r} cannot go on: {error.message}. It was deleted under the pipeline",
            hint="What was stored is as it was. Make the topic again and run with --fresh",
        )
    except LogUnavailable:
        return None  # that is the failure then, and it tells of itself
    return None


def _gone(step: str, topic: str, partition: int, read: int, first: int) -> PipelineError:
    return PipelineError(
        f"Step {step!r} has not read offsets {read:,} to {first - 1:,} of partition {partition} of "
        f"topic {topic!r}, and they are gone: its retention, or somebody, removed them",
        hint="\n".join(_CHOICES),
        topic=topic,
        partition=partition,
        first=read,
        end=first,
    )


def _another(step: str, topic: str, partition: int, read: int, end: int) -> PipelineError:
    return PipelineError(
        f"Step {step!r} has read up to offset {read:,} of partition {partition} of topic "
        f"{topic!r}, which now ends at {end:,}: it is another topic than it was",
        hint="headrace run --fresh computes everything anew from the topic as it is now",
        topic=topic,
        partition=partition,
    )
