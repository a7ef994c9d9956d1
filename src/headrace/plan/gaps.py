"""Gaps: rows that are gone before a step has read them. The step stops and says what to do.

Rows also go with a deleted topic. A position means nothing in a topic that was created again under
its name, or after commits that a power cut rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from headrace.errors import LogUnavailable, PipelineError, UnknownTopic
from headrace.files import write_note
from headrace.log import Log
from headrace.plan.position import Positions, last_kept
from headrace.plan.steps import Step, topics_of

TOPICS = "topics.json"
"""The file with the ids of the topics that an application reads in real time."""

_CHOICES = (
    "headrace run --fresh recomputes everything from the rows that are still there",
    "If you have the rows elsewhere, put them into another topic and run the pipeline on that",
    "Set the topic's retention longer than a pipeline may be down",
)
_FRESH = "headrace run --fresh recomputes everything from the topic as it is now"


class Gaps:
    """Detects gaps in the topics that a step reads, by their ids and positions."""

    def __init__(self, log: Log, step: str, topics: Iterable[str], *, fresh: str = _FRESH) -> None:
        self._log = log
        self._step = step
        self._ids = log.topic_ids(topics)
        self._fresh = fresh

    def found(self, reached: Positions) -> PipelineError | None:
        """The error for a gap after a position; None if there is no gap."""
        try:
            self.check_topics(reached)
            for topic, position in reached.items():
                partitions = self._log.topic(topic).partitions
                if len(partitions) < len(position.offsets):
                    return self._made_again(topic)  # a topic does not lose partitions
                for state in partitions[: len(position.offsets)]:
                    # Partitions that were added since are read from their beginning.
                    read = position.offsets[state.partition]
                    if state.first > read:
                        return self._gone(topic, state.partition, read, state.first)
                    if state.end < read:
                        return self._cut_off(topic, state.partition, read, state.end)
        except PipelineError as error:
            return error
        except UnknownTopic:
            return self._deleted(topic)
        except LogUnavailable:
            return None  # the log reports that failure itself
        return None

    def check(self, reached: Positions) -> None:
        """Check that there is no gap after a position."""
        if (gap := self.found(reached)) is not None:
            raise gap

    def check_topics(self, *places: Positions) -> None:
        """Check that the topics are the same ones, and have the commits of these positions."""
        now = self._log.topic_ids(self._ids)
        for topic, id in self._ids.items():
            if topic not in now:
                raise self._deleted(topic)
            known = (place[topic].id for place in places if topic in place)
            if {now[topic]} != {id, *known} - {None}:
                raise self._made_again(topic)
        for topic, position in (item for place in places for item in place.items()):
            if position.id is None and self._log.judges_rows:
                continue  # it counts batches of a step in real time
            if position.commit > (kept := last_kept(self._log, position)):
                raise self._rolled_back(topic, kept + 1, position.commit)

    def _deleted(self, topic: str) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} cannot continue: topic {topic!r} was deleted while the pipeline "
            "read it",
            hint=f"Stored results are unchanged. Create the topic again. {self._fresh}",
            topic=topic,
        )

    def _made_again(self, topic: str) -> PipelineError:
        return made_again(topic, self._fresh)

    def _rolled_back(self, topic: str, first: int, commit: int) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} has read topic {topic!r} up to commit {commit:,}, and commits "
            f"from {first:,} on are gone: {self._cause}",
            hint=self._fresh,
            topic=topic,
            first=first,
        )

    @property
    def _cause(self) -> str:
        if self._log.judges_rows:
            return "the topic _headrace.commits was deleted, or made again"
        return (
            "they were not synced when the machine went down, or an older copy of the log was "
            "restored"
        )

    def _gone(self, topic: str, partition: int, read: int, first: int) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} has not read offsets {read:,} to {first - 1:,} of partition "
            f"{partition} of topic {topic!r}, and they are gone: retention or a user removed them",
            hint="\n".join(_CHOICES),
            topic=topic,
            partition=partition,
            first=read,
            end=first,
        )

    def _cut_off(self, topic: str, partition: int, read: int, end: int) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} has read up to offset {read:,} of partition {partition} of topic "
            f"{topic!r}, which now ends at {end:,}: the rows between are lost",
            hint=self._fresh,
            topic=topic,
            partition=partition,
        )


def check_known(log: Log, path: Path, steps: Iterable[Step]) -> None:
    """Check that steps read the same topics as before, by their ids in a file."""
    topics = {topic.name for step in steps for topic in topics_of(step)}
    before: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    now = log.topic_ids(topics)
    for topic, id in now.items():
        if before.get(topic, id) != id:
            raise made_again(topic)
    if now.keys() - before.keys():
        write_note(path, json.dumps(before | now))


def made_again(topic: str, fresh: str = _FRESH) -> PipelineError:
    """The error for a topic that was created again since it was read."""
    return PipelineError(
        f"Topic {topic!r} was deleted and created again since the pipeline began to read it",
        hint=fresh,
        topic=topic,
    )
