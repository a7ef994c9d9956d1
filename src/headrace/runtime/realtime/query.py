"""A step as a real-time query."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.errors import HeadraceError, LogUnavailable, Retryable
from headrace.files import write_note
from headrace.log import Log, Topic
from headrace.plan.gaps import Gaps
from headrace.plan.kafka.connection import Tell, connection_of
from headrace.plan.kafka.decode import Decoder, letters
from headrace.plan.kafka.schemas import learned
from headrace.plan.kafka.source import between
from headrace.plan.law import Law
from headrace.plan.position import Position, Positions
from headrace.plan.steps import Step, topics_of
from headrace.runtime.checkpoint import live_owner
from headrace.runtime.realtime.counting import check
from headrace.runtime.realtime.plan import Plan
from headrace.runtime.realtime.qualify import Reason, refused
from headrace.runtime.realtime.settings import QUERY_SETTINGS, WRITING, RealTime
from headrace.runtime.streaming import Streaming


class TableLetters:
    """Writes the dead letters of a table's topic, which a query reads beside its own.

    The table is read anew for every batch, so the query cannot report each of its records only
    once. They are checked apart, up to the end of the topic, whenever a checkpoint is written.
    `place` is the file with the position, which is written after the letters: after a crash some
    may come again, as all does in real time.
    """

    def __init__(
        self, spark: SparkSession, log: Log, step: Step, topic: Topic, place: Path
    ) -> None:
        self._spark = spark
        self._log = log
        self._step = step
        self._topic = topic
        self._place = place

    def tell(self) -> None:
        """Write the letters of all records since the last call."""
        name = self._topic.name
        partitions = self._log.topic(name).partitions
        end = Position(0, tuple(state.end for state in partitions))
        starts = (first for first, _ in self._known().ranges(end))
        start = tuple(map(max, starts, (state.first for state in partitions)))
        decoder = Decoder.of(self._topic, log=self._log)
        begin = Position(0, start)
        records = between(self._spark, self._log, name, begin, end, decoder.reading)
        if records is None:
            return
        found = decoder.misplaced(records).orderBy("partition", "offset")
        self._write(letters(self._step, name, 0, found.toArrow()).dead)
        write_note(self._place, json.dumps(end.to_json()))

    def _write(self, dead: list[pa.Table]) -> None:
        if dead:
            with self._log.producer() as producer:
                producer.append(self._step.dead_letters, pa.concat_tables(dead))

    def _known(self) -> Position:
        if not self._place.exists():
            return Position(0, ())
        return Position.from_json(json.loads(self._place.read_text()))


logger = logging.getLogger("headrace.kafka")

_NOT_ALLOWED = re.compile(r"NOT_IN_ALLOWLIST\].*?(\w+)(?: is|, | are)", re.DOTALL)
"""Spark's error for an operator that Real-time Mode does not support."""


class RealTimeQuery(Streaming):
    """Runs one step. Its position is in its checkpoint alone."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        step: Step,
        checkpoint: Path,
        settings: RealTime,
        tell: Tell,
        letters: TableLetters | None = None,
    ) -> None:
        super().__init__(spark, step.name, f"{step.app}.{step.name}", checkpoint)
        self._log = log
        self._connection = connection_of(log)
        self.step = step
        self._settings = settings
        self._tell = tell
        self._letters = letters
        self.plan = self._plan()
        self._seen = -1
        self.law = Law()
        """The row law since the first start."""
        self.reached: Positions = {}
        """The position of Spark's last checkpoint, by topic."""

    def start(self) -> None:
        """Start from the checkpoint, or from the beginning of the topics."""
        if self._query is not None:
            self.plan = self._plan()  # it may know more schemas than the one that failed
        self._checkpoint.claim(live_owner(self.step))
        self._seen = -1
        read = [topic.name for topic in topics_of(self.step)]
        self._gaps = Gaps(self._log, self.step.name, read)
        if (last := self._checkpoint.last_done()) >= 0:
            self.reached = self._checkpoint.end_of(last)
            self._gaps.check(self.reached)
        self._write_letters()
        self._start(self._writer, QUERY_SETTINGS)

    def _plan(self) -> Plan:
        log, shift = self._log, self._checkpoint.shift
        there = {topic.name: topic for topic in log.topics()}
        return Plan(self._spark, log, self._connection, self.step, self._settings, there, shift)

    def _writer(self) -> DataStreamWriter:
        writer = self.plan.records.writeStream.format("kafka").outputMode("update")
        # Spark's type hints lack this trigger.
        trigger: Any = writer.options(**self._connection, **WRITING).trigger
        made: DataStreamWriter = trigger(realTime=self._settings.trigger)
        return made

    def _observe(self, *, ended: bool) -> None:
        if self._check_batches() and not ended:
            self._check_topics()

    def _check_batches(self) -> bool:
        """True if batches have ended since the last call. Raise unless they keep the row law."""
        recent = [json.loads(progress.json) for progress in self._started_query.recentProgress]
        ended = [report for report in recent if report["batchId"] > self._seen]
        for report in ended:
            self._seen = report["batchId"]
            law = self.plan.counting.law(report)
            check(self.step.name, law, report)
            self.law += law
            self.reached = {
                topic: Position(0, tuple(offsets[p] for p in sorted(offsets, key=int)))
                for source in report["sources"]
                for topic, offsets in (source.get("endOffset") or {}).items()
            }
            self._tell(self.reached)
        if ended:
            self._write_letters()
        return bool(ended)

    def _check_topics(self) -> None:
        """Raise if a topic was replaced. The query itself reports a broker that is down."""
        with contextlib.suppress(LogUnavailable):
            self._gaps.check_topics()

    def _write_letters(self) -> None:
        """Write the dead letters of the lookup table. A failure is made up for next time."""
        if self._letters is not None:
            try:
                self._letters.tell()
            except (Retryable, PySparkException) as error:
                logger.warning(
                    "the dead letters of the table of %s were not written: %s",
                    self.step.name,
                    error,
                )

    def _gap(self) -> HeadraceError | None:
        return self._gaps.found(self.reached)

    def _translated(self, error: BaseException) -> HeadraceError:
        """As for any query, and operators that only Spark sees: callables return them."""
        if (new := learned(self._log, self.name, error)) is not None:
            return new
        if (found := _NOT_ALLOWED.search(str(error))) is None:
            return super()._translated(error)
        python = "Python" in found[1]
        what = (
            "calls a function in Python"
            if python
            else f"needs {found[1]}, which Spark does not support"
        )
        instead = "Write it in Spark SQL, or leave out latency='real-time'"
        return refused(self.step.name, Reason(f"it {what}", instead, self.step.stream.where))
