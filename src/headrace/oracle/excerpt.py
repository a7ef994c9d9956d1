"""A part of the log as the oracle takes it: the newest rows of some topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.log.sample import Sample
from headrace.oracle.events import Event


@dataclass(frozen=True)
class Excerpt:
    """Events in log order, and the frontier of each topic after the last of them."""

    events: tuple[Event, ...]
    frontiers: dict[str, int | None]

    @property
    def frontier(self) -> int | None:
        """The frontier of the slowest topic; None until all have one."""
        known = [moment for moment in self.frontiers.values() if moment is not None]
        return min(known) if len(known) == len(self.frontiers) else None


def excerpt_of(samples: Iterable[Sample]) -> Excerpt:
    """The rows of samples as events. Without commits, all came at once, and none is late."""
    samples = list(samples)
    events = [event for sample in samples for event in _events(sample)]
    events.sort(key=lambda e: (e.commit, e.topic.name, e.partition, e.offset))
    return Excerpt(tuple(events), {sample.topic.name: _frontier(sample) for sample in samples})


def _events(sample: Sample) -> Iterator[Event]:
    before = {commit.number: commit.before for commit in sample.commits}
    for batch in sample.batches:
        commit = batch.commit or 0
        for index, record in enumerate(batch.records()):
            if record.value is not None:
                times = batch.timestamps
                appended = batch.timestamp if times is None else int(times[index])
                place = (commit, batch.partition, record.offset, appended, before.get(commit))
                yield Event(sample.topic, *place, record.value)


def _frontier(sample: Sample) -> int | None:
    if sample.commits:
        return sample.commits[-1].after
    living = [e.event_time for e in _events(sample) if e.dead is None and e.event_time is not None]
    return max(living, default=None)
