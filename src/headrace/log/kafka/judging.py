"""Judgement of a partition's records: which are valid, and the frontier that each met.

A partition's frontier is the highest event time of its valid rows so far. Kafka orders a partition,
so the frontier that a row met follows from the log alone, whoever reads it and in whatever batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from headrace.clock import FIRST_MOMENT, LAST_MOMENT, micros
from headrace.log.declared import TopicRow
from headrace.log.event_time import times_of
from headrace.log.kafka.cuts import NONE
from headrace.log.kafka.messages import Again, batch_of, fitting
from headrace.log.record import Batch, Fault, Judged
from headrace.log.state import Topic


@dataclass
class Judge:
    """Judges the records of one partition, in order, from a frontier on."""

    topic: TopicRow
    frontier: int
    again: Again = lambda _: None

    def batches(self, messages: Sequence[Message]) -> Iterator[Batch]:
        """The next records. Those that are not rows of the topic are null, and named."""
        start = 0
        while start < len(messages):
            end = start + fitting(messages[start:])
            yield self._batch(messages[start:end])
            start = end

    def _batch(self, messages: Sequence[Message]) -> Batch:
        faults: dict[int, Fault] = {}
        batch = batch_of(self.topic, messages, again=self.again, faults=faults)
        good, moments = _judged(self.topic.topic, batch, faults)
        for place in np.flatnonzero(~good).tolist():
            if (value := messages[place].value()) is not None:
                faults.setdefault(int(batch.offsets[place]), Fault(None, value))
        frontiers = np.maximum.accumulate(np.concatenate([[self.frontier], moments]))
        self.frontier = int(frontiers[-1])
        # By arrival, the moment of a row is the broker's, and the row meets it.
        by_arrival = self.topic.topic.settings.frontier == "arrival"
        met = frontiers[1:] if by_arrival else frontiers[:-1]
        return replace(batch, judged=Judged(good, met, faults))


def times(topic: Topic, batch: Batch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The event time of each row; `NONE` where there is none."""
    if topic.event_time is None:
        return np.full(len(batch), NONE, np.int64)
    found = times_of(topic, batch.data).cast(pa.int64())
    made: np.ndarray[Any, np.dtype[np.int64]] = pc.fill_null(found, NONE).to_numpy(
        zero_copy_only=False
    )
    return made


def _judged(
    topic: Topic, batch: Batch, faults: dict[int, Fault]
) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.int64]]]:
    """The rows with a valid event time, and the moment to which each advances the frontier."""
    assert batch.timestamps is not None
    found = times(topic, batch)
    if topic.event_time is None:
        good = np.ones(len(batch), np.bool_)
    else:
        good = (found >= FIRST_MOMENT) & (found <= LAST_MOMENT)
        if topic.settings.skew is not None:
            good &= found <= batch.timestamps + micros(topic.settings.skew)
    if batch.tombstones is not None:
        good &= ~batch.tombstones
    if faults:
        good &= ~np.isin(batch.offsets, list(faults))
    match topic.settings.frontier:
        case "arrival":
            return good, batch.timestamps
        case "punctuation":
            return good, np.full(len(batch), NONE, np.int64)
        case _:
            return good, np.where(good, found, NONE)
