"""Rows that are gone before a step has read them: it stops there, and says what can be done.

They are gone with a topic that was deleted, too. One that was made again under its name has other
rows, and where a step was in the old one means nothing in it. So it is with commits that a power
cut took back after they were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import LogUnavailable, PipelineError, UnknownTopic
from headrace.files import write_note
from headrace.log import Capability, Log
from headrace.plan.inputs import topics_of
from headrace.plan.position import Position, last_kept
from headrace.plan.steps import Step

TOPICS = "topics.json"
"""The file with the ids of the topics of a broker that an application reads."""

_CHOICES = (
    "headrace run --fresh computes everything anew, from the rows that are still there",
    "If they are kept elsewhere, put them into another topic and run the pipeline on that",
    "Let the topic keep rows for longer than a pipeline may stand still: retention",
)
_FRESH = "headrace run --fresh computes everything anew from the topic as it is now"


class Gaps:
    """Looks for what is missing of the topics that a step reads.

    They are the topics that they are when it is made, or those that positions have the ids of.
    """

    def __init__(self, log: Log, step: str, topics: Iterable[str], *, fresh: str = _FRESH) -> None:
        self._log = log
        self._step = step
        self._ids = log.topic_ids(topics)
        self._fresh = fresh

    def found(self, reached: Mapping[str, Position]) -> PipelineError | None:
        """What is missing after the place that was reached; None if nothing is."""
        try:
            self.check_topics(reached)
            for topic, position in reached.items():
                partitions = self._log.topic(topic).partitions
                if len(partitions) < len(position.offsets):
                    return self._made_again(topic)  # a topic does not lose partitions
                for state in partitions[: len(position.offsets)]:
                    # What was added since is read from its beginning.
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
            return None  # that is the failure then, and it tells of itself
        return None

    def check(self, reached: Mapping[str, Position]) -> None:
        """Return if nothing is missing after the place that was reached."""
        if (gap := self.found(reached)) is not None:
            raise gap

    def check_topics(self, *places: Mapping[str, Position]) -> None:
        """Return if the topics are those that they were, and have what was read up to places."""
        now = self._log.topic_ids(self._ids)
        for topic, id in self._ids.items():
            if topic not in now:
                raise self._deleted(topic)
            known = (place[topic].id for place in places if topic in place)
            if {now[topic]} != {id, *known} - {None}:
                raise self._made_again(topic)
        if Capability.COMMITS in self._log.capabilities:
            for topic, position in (item for place in places for item in place.items()):
                if position.commit > (kept := last_kept(self._log, position)):
                    raise self._taken_back(topic, kept + 1, position.commit)

    def _deleted(self, topic: str) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} cannot go on: there is no topic {topic!r}. It was deleted under "
            "the pipeline",
            hint=f"What was stored is as it was. Make the topic again. {self._fresh}",
            topic=topic,
        )

    def _made_again(self, topic: str) -> PipelineError:
        return made_again(topic, self._fresh)

    def _taken_back(self, topic: str, first: int, commit: int) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} has read topic {topic!r} up to commit {commit:,}, and commits "
            f"from {first:,} on were taken back since: they were not synced when the machine went "
            "down, or an older copy of the log was restored",
            hint=self._fresh,
            topic=topic,
            first=first,
        )

    def _gone(self, topic: str, partition: int, read: int, first: int) -> PipelineError:
        return PipelineError(
            f"Step {self._step!r} has not read offsets {read:,} to {first - 1:,} of partition "
            f"{partition} of topic {topic!r}, and they are gone: its retention, or somebody, "
            "removed them",
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
    """Return if what steps read are the topics that were read before: their ids are in a file."""
    topics = {topic.name for step in steps for topic in topics_of(step)}
    before: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    now = log.topic_ids(topics)
    for topic, id in now.items():
        if before.get(topic, id) != id:
            raise made_again(topic)
    if now.keys() - before.keys():
        write_note(path, json.dumps(before | now))


def made_again(topic: str, fresh: str = _FRESH) -> PipelineError:
    """The error for a topic that is another one than was read before."""
    return PipelineError(
        f"Topic {topic!r} was deleted and made again since the pipeline began to read it: it is "
        "another topic than it was",
        hint=fresh,
        topic=topic,
    )
