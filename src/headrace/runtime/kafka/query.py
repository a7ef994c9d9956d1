"""A step as a streaming query over Kafka, which judges each row by its own partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.clock import FIRST_MOMENT, MILLISECOND, micros
from headrace.errors import HeadraceError, LawBroken, PipelineError, PipelineFailed, Retryable
from headrace.plan import metadata
from headrace.plan.accounting import Account
from headrace.plan.batch import Payload, Sink
from headrace.plan.kafka.connection import Tell, group_of
from headrace.plan.kafka.decode import letters
from headrace.plan.kafka.frontiers import FrontierNotes, Frontiers
from headrace.plan.kafka.schemas import learned
from headrace.plan.law import NOT_STORED
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import START, Position, Positions, behind, started_at
from headrace.plan.uncounted import Uncounted
from headrace.runtime.kafka.frames import KafkaFrames
from headrace.runtime.kafka.oldest import Oldest, metric_of
from headrace.runtime.query import Query
from headrace.runtime.spark_internals import (
    NO_ROWS,
    BatchCounts,
    TopicCounts,
    batch_metadata,
    counts_of,
    executed_plan,
    observed_json,
)

logger = logging.getLogger("headrace.kafka")

_NAMED = 5
"""The most partitions that a warning names."""


class KafkaQuery(Query):
    """Runs one step straight from Kafka. Its partitions' own history decides what is late."""

    frames: KafkaFrames

    def _frames(self, job: Job, plan: StreamPlan) -> KafkaFrames:
        return KafkaFrames(job, plan)

    def start(self, sink: Sink, *, until_caught_up: bool) -> None:
        self._newest: dict[str, int] = {}
        """The newest time of each topic since the start, for steps without windows."""
        self._warned = False
        self._tell: Tell | None = group_of(self._log, f"{self.step.app}.{self.step.name}")
        super().start(sink, until_caught_up=until_caught_up)

    def stop(self) -> None:
        super().stop()
        self._tell = None

    # A batch

    def _find_uncounted(self, start: Positions, end: Positions) -> dict[str, Uncounted]:
        self._stopwatch.report(self._sink, self.progress, last=False)
        return {}

    def _store(
        self, sink: Sink, number: int, frame: DataFrame, begin: Positions, end: Positions
    ) -> None:
        if not self.frames.delivers:
            notes = FrontierNotes(self._checkpoint.path)
            if behind(sink.reached, end):
                self._frontiers = Frontiers.at(sink.reached, sink.frontier)
                notes.write(number, self._frontiers)
            else:
                self._frontiers = notes.read(number)
            self.frames.begin(self._frontiers)
        super()._store(sink, number, frame, begin, end)

    def _run_again(self, frame: DataFrame) -> None:
        super()._run_again(frame)
        self._passed(self._counts())

    def _reached(self, end: Positions) -> Positions:
        if self.frames.delivers:
            return end  # no row of it is ever late
        return self._frontiers.after(self.frames.reached, end)

    def _results(self, number: int, frame: DataFrame, sink: Sink) -> Payload:
        self._check_watermark(number)
        revision = max(position.commit for position in self._end_of(number).values())
        return self.frames.judged(frame, sink, revision)

    def _account(
        self, number: int, start: Positions, end: Positions, uncounted: Mapping[str, Uncounted]
    ) -> Account:
        counts = self._counts()
        for topic in end:
            self._check_span(topic, counts.topics[topic].rows, end[topic].rows_after(start[topic]))
        uncounted = {
            topic: self._misplaced(topic, counts.topics[topic], start[topic], end[topic])
            for topic in end
        }
        late = self._too_late(counts, start, end)
        rows = {topic: counts.topics[topic].rows for topic in end}
        frontier = self._frontier_at(counts, self._reached(end))
        made = batch_metadata(self._checkpoint.path, number)["batchTimestampMs"] * MILLISECOND
        return Account(rows, uncounted, late, frontier, made)

    def _misplaced(
        self, topic: str, counts: TopicCounts, start: Position, end: Position
    ) -> Uncounted:
        """Dead letters and tombstones, read again if there are any."""
        wanted = counts.rows - counts.placed
        if not wanted:
            return Uncounted()
        found = letters(self.step, topic, end.commit, self.frames.misplaced(topic, start, end))
        if found.dead_rows + found.tombstones != wanted:
            raise LawBroken(
                f"Step {self.step.name!r} left out {wanted:,} rows of {topic!r}, but a second read "
                f"has {found.dead_rows:,} dead letters and {found.tombstones:,} tombstones",
                hint=NOT_STORED,
            )
        return found

    def _too_late(self, counts: BatchCounts, start: Positions, end: Positions) -> pa.Table | None:
        """The late pairs of row and window, read again if there are any."""
        observed = self._observed()
        if not any(observed[name] for name in self._counters.late):
            return None
        ranges = {topic: (start[topic], end[topic]) for topic in end}
        highest = max(self.frames.reached.values())
        return self.frames.late_between(ranges, highest, self._oldest(counts))

    def _stored(self, end: Positions) -> None:
        if self._tell is not None:
            self._tell(end)
        if not self._warned and not self.frames.delivers and self._sink is not None:
            self._warned = True
            _warn_of_empty_partitions(self.step.name, Frontiers.at(self._sink.reached, None))

    def _translated(self, error: BaseException) -> HeadraceError:
        """As for any step. But an unavailable broker may come back, so it is worth a restart."""
        if (new := learned(self._log, self.name, self._error or error)) is not None:
            return new
        found = super()._translated(error)
        if isinstance(found, Retryable):
            message = f"Step {self.step.name!r} failed: {found.message}"
            return PipelineFailed(message, hint=found.hint, by_chance=True)
        return found

    # Time

    def _frontier_at(self, counts: BatchCounts, end: Positions) -> int | None:
        """The lowest frontier of all partitions, if each has one.

        A step without windows has no use for those. Its frontier is the lowest of the topics'
        newest times.
        """
        if self.frames.delivers:
            return self._passed(counts)
        lowest = Frontiers.at(end, None).lowest
        return None if lowest == metadata.NO_FRONTIER else lowest

    def _passed(self, counts: BatchCounts) -> int | None:
        """The lowest of the topics' newest times, if each has one."""
        for topic, found in counts.topics.items():
            if found.newest is not None:
                self._newest[topic] = max(found.newest, self._newest.get(topic, found.newest))
        return min(self._newest.values()) if set(self._newest) == set(counts.topics) else None

    def _check_watermark(self, number: int) -> None:
        """Raise if Spark's watermark in a batch is beyond the lowest frontier at its beginning.

        Spark would drop rows that are not late.
        """
        if (held := self.frames.plan.held) is None:
            return
        patience = micros(held) // MILLISECOND * MILLISECOND
        first = -self._shift  # the lowest watermark of Spark
        highest = max(first, max(self._frontiers.lowest, FIRST_MOMENT) - patience)
        written = batch_metadata(self._checkpoint.path, number)
        sparks = int(written["batchWatermarkMs"]) * MILLISECOND - self._shift
        if sparks > highest:
            raise LawBroken(
                f"Spark's watermark in batch {number} of step {self.step.name!r} is {sparks:,} "
                f"microseconds, and by the stored frontiers it is at most {highest:,}",
                hint=NOT_STORED,
            )

    # What Spark knows

    @property
    def plan(self) -> str:
        """Spark's physical plan of the last batch."""
        return executed_plan(self._started_query)

    def _counts(self) -> BatchCounts:
        found = counts_of(self._started_query, self._shift)
        return replace(found, topics=dict.fromkeys(self.step.topics, NO_ROWS) | found.topics)

    def _oldest(self, counts: BatchCounts) -> dict[str, Oldest]:
        """The oldest rows of each topic that has rows in the batch that was just computed."""
        metrics = {metric_of(t): t for t, found in counts.topics.items() if found.placed}
        found = observed_json(self._started_query, metrics)
        return {metrics[name]: Oldest.from_json(text) for name, text in found.items()}

    def _check_span(self, topic: str, rows: int, span: int) -> None:
        # There may be fewer: markers and aborted rows of transactions take offsets too.
        if rows > span:
            raise PipelineFailed(
                f"Spark read {rows:,} rows of {topic!r} in step {self.step.name!r}, and there are "
                f"{span:,}: a worker was lost, and its rows were counted twice",
                hint="Nothing of this batch was stored. Run it again to resume",
                by_chance=True,
            )

    # Checkpoints

    def _end_of(self, number: int) -> Positions:
        """The end of a batch; before a checkpoint's first batch, the position it started from."""
        assert self._sink is not None
        if number < 0 and started_at(self._checkpoint.path):
            return self._sink.reached
        return super()._end_of(number)

    def _claim_checkpoint(self, sink: Sink) -> None:
        """Claim the checkpoint. If it is lost, start another after all that is stored.

        A step whose state was in Spark cannot do that: its state is lost too.
        """
        stored = max(position.commit for position in sink.reached.values())
        if stored and not self._checkpoint.exists and not self.step.computed.has_spark_state:
            self._checkpoint.path.mkdir(parents=True, exist_ok=True)
            (self._checkpoint.path / START).write_text(str(stored))
        elif stored and not self._checkpoint.exists:
            raise PipelineError(
                f"Step {self.step.name!r} has stored results of {stored:,} batches, and its "
                "checkpoint is gone, and the state of its windows with it",
                hint="headrace run --fresh computes everything from the start",
            )
        super()._claim_checkpoint(sink)


def _warn_of_empty_partitions(step: str, frontiers: Frontiers) -> None:
    for topic, found in frontiers.topics.items():
        empty = [str(p) for p, moment in enumerate(found) if moment == metadata.NO_FRONTIER]
        if empty:
            logger.warning(
                "no window of step %s fires until partition %s of topic %s has a row: its first "
                "row may be of any time. With the setting idle, the topic is read from a landing, "
                "where partitions need not have rows",
                step,
                ", ".join(empty[:_NAMED]) + (" ..." if empty[_NAMED:] else ""),
                topic,
            )
