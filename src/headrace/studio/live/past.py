"""Pipelines as of a commit: topics with the commits up to it, and steps with the batches up to it.

The account of the last 1,000 batches of each step is kept, and the log has the frontier after each
commit. What a step held in its state, how fast it was and what it waited for is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.application.doctor.records import Records
from headrace.clock import micros
from headrace.errors import InvalidPosition, UnknownTopic
from headrace.log import Capability, Commit, Log
from headrace.pipeline.app import App
from headrace.plan.law import Law
from headrace.plan.position import Position, position_at
from headrace.plan.steps import dead_letters_of, steps_of
from headrace.store.changelog import topic_of
from headrace.studio.live.pipeline_states import PipelineNow, State, StepNow

NOT_KEPT = (
    "rows per second and the duration of batches",
    "open windows and other state of steps",
    "the doctor's findings, and who was running",
    "committed offsets and lag of consumer groups",
)
"""Parts of the present that have no history."""

OLDER = "its batches of that time are no longer kept"


@dataclass(frozen=True)
class ViewThen:
    """The changelog of a view as of a commit: its changes so far. None without a changelog."""

    app: str
    name: str
    changes: int | None


def pipeline_then(log: Log, app: str, declared: App | None, commit: int) -> PipelineNow:
    """An application as of a commit, as far as it is kept."""
    state = State("as of", "muted", f"commit {commit:,}")
    with Records(log.home, app) as records:
        stored = records.steps()
        if declared is None:
            steps = [
                _then(log, records, commit, name, (), delay, view=delay is not None)
                for name, delay in stored.items()
            ]
        else:
            steps = [
                _then(
                    *(log, records, commit, step.name, step.topics, micros(step.delay)),
                    view=step.view is not None,
                    outputs=(*step.outputs, *step.late, *_dead(records, app, step.name)),
                )
                for step in steps_of(declared)
            ]
    unknown = [step.name for step in steps if step.unknown]
    words = f"{', '.join(unknown)}: {OLDER}" if unknown else ""
    return PipelineNow(app, declared, state, tuple(steps), unknown=words)


def records_then(log: Log, names: list[str], commit: int) -> dict[str, int]:
    """The records that each topic had at a commit, of those that are still kept."""
    found = {}
    for name in names:
        try:
            state = log.topic(name)
            ends = _ends(log, name, commit)
        except (UnknownTopic, InvalidPosition):  # deleted meanwhile, or made later
            continue
        found[name] = sum(
            max(0, end - each.first) for each, end in zip(state.partitions, ends, strict=True)
        )
    return found


def views_then(log: Log, found: list[PipelineNow], commit: int) -> list[ViewThen]:
    """The views of pipelines as of a commit."""
    views = []
    for now in found:
        for step in now.steps:
            if step.view:
                name = topic_of(now.app, step.name)
                there = bool(log.topic_ids([name])) if _has_commits(log) else False
                changes = sum(_ends(log, name, commit)) if there else None
                views.append(ViewThen(now.app, step.name, changes))
    return views


def _then(
    log: Log,
    records: Records,
    commit: int,
    name: str,
    topics: tuple[str, ...],
    delay: int | None,
    *,
    view: bool,
    outputs: tuple[str, ...] = (),
) -> StepNow:
    found = records.as_of(name, commit)
    reached, law = ({}, Law()) if found is None else found
    reads = topics or _topics_of(records, name)
    frontier = _frontier(log, reached)
    return StepNow(
        name,
        law,
        frontier,
        None if frontier is None or delay is None else frontier - delay,
        0 if found is None else sum(_behind(log, each, reached, commit) for each in reads),
        0.0,
        reads,
        view,
        outputs,
        (),
        ran=bool(reached),
        unknown=OLDER if found is None else "",
    )


def _dead(records: Records, app: str, step: str) -> list[str]:
    """The topic of dead letters, if the step has any now: the picture keeps its boxes."""
    record = records.of(step)
    return [dead_letters_of(app)] if record is not None and record.law.dead else []


def _topics_of(records: Records, step: str) -> tuple[str, ...]:
    record = records.of(step)
    return () if record is None else tuple(record.reached)


def _frontier(log: Log, reached: dict[str, Position]) -> int | None:
    """The frontier of a position: the lowest of its topics."""
    found = [_frontier_of(log, topic, place.commit) for topic, place in reached.items()]
    known = [each for each in found if each is not None]
    return min(known) if found and len(known) == len(found) else None


def _frontier_of(log: Log, topic: str, commit: int) -> int | None:
    try:
        return log.frontier(topic, commit)
    except (UnknownTopic, InvalidPosition):
        return None


def _behind(log: Log, topic: str, reached: dict[str, Position], commit: int) -> int:
    """The rows of a topic up to a commit that a position does not have."""
    try:
        end = position_at(log, topic, commit)
    except (UnknownTopic, InvalidPosition):
        return 0
    place = reached.get(topic)
    start = place.offsets if place is not None else ()
    padded = (*start, *(0 for _ in end.offsets[len(start) :]))
    return sum(max(0, high - low) for low, high in zip(padded, end.offsets, strict=False))


def _ends(log: Log, topic: str, commit: int) -> tuple[int, ...]:
    partitions = range(log.topic(topic).topic.partitions)
    return tuple(log.offset_at(topic, each, Commit(commit)) for each in partitions)


def _has_commits(log: Log) -> bool:
    return Capability.NUMBERED_APPENDS in log.capabilities
