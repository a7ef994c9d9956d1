"""A step as a real-time query."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import HeadraceError, LogUnavailable, Retryable
from headrace.log import Log
from headrace.plan.gaps import Gaps
from headrace.plan.inputs import topics_of
from headrace.plan.kafka.connection import Tell, connection_of
from headrace.plan.law import Law
from headrace.plan.position import Position
from headrace.plan.steps import Step, fingerprint
from headrace.runtime.checkpoint import Checkpoint
from headrace.runtime.failures import failure_of, java_is_gone
from headrace.runtime.realtime.counting import check
from headrace.runtime.realtime.letters import TableLetters
from headrace.runtime.realtime.plan import Plan
from headrace.runtime.realtime.qualify import Reason, refused
from headrace.runtime.realtime.settings import QUERY_SETTINGS, WRITING, RealTime
from headrace.runtime.session import set_meanwhile
from headrace.runtime.spark_internals import await_end

logger = logging.getLogger("headrace.kafka")

_NOT_ALLOWED = re.compile(r"NOT_IN_ALLOWLIST\].*?(\w+)(?: is|, | are)", re.DOTALL)
"""Spark's error for an operator that Real-time Mode does not support."""


def live_owner(step: Step) -> dict[str, Any]:
    """The owner of a checkpoint: a step and its definition, in real time."""
    return {
        "app": step.app,
        "step": step.name,
        "fingerprint": fingerprint(step),
        "latency": "real-time",
    }


class RealTimeQuery:
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
        self._spark = spark
        self._log = log
        self._connection = connection_of(log)
        self.step = step
        self._checkpoint = Checkpoint(checkpoint)
        self._settings = settings
        self._tell = tell
        self._letters = letters
        there = {topic.name: topic for topic in log.topics()}
        self.plan = Plan(spark, self._connection, step, settings, there, self._checkpoint.shift)
        self._query: StreamingQuery | None = None
        self._seen = -1
        self.law = Law()
        """The row law since the first start."""
        self.reached: Mapping[str, Position] = {}
        """The position of Spark's last checkpoint, by topic."""

    def start(self) -> None:
        """Start from the checkpoint, or from the beginning of the topics."""
        self._checkpoint.claim(live_owner(self.step))
        self._seen = -1
        read = [topic.name for topic in topics_of(self.step)]
        self._gaps = Gaps(self._log, self.step.name, read)
        if (last := self._checkpoint.last_done()) >= 0:
            self.reached = self._checkpoint.end_of(last)
            self._gaps.check(self.reached)
        self._write_letters()
        writer = (
            self.plan.records.writeStream.queryName(f"{self.step.app}.{self.step.name}")
            .format("kafka")
            .options(**self._connection, **WRITING)
            .option("checkpointLocation", str(self._checkpoint.path))
            .outputMode("update")
        )
        # Spark's type hints lack this trigger.
        trigger: Any = writer.trigger
        try:
            with set_meanwhile(self._spark, QUERY_SETTINGS):
                self._query = trigger(realTime=self._settings.trigger).start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None

    def wait(self, seconds: float) -> bool:
        """True if it ends within so many seconds. Its failure is raised."""
        assert self._query is not None
        try:
            ended = await_end(self._query, seconds)
            if self._check_batches():
                self._check_topics()
        except StreamingQueryException as error:
            raise self._failure(error) from None
        except (Py4JError, OSError) as error:
            raise java_is_gone(self.step.name) from error
        return ended

    def stop(self) -> None:
        """Stop at once. The next run reads rows since the last checkpoint again."""
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()
                self._check_batches()

    @property
    def progress(self) -> Mapping[str, Any]:
        """Spark's progress report on the last batch."""
        last = self._query.lastProgress if self._query is not None else None
        return json.loads(last.json) if last is not None else {}

    def _check_batches(self) -> bool:
        """True if batches have ended since the last call. Raise unless they keep the row law."""
        assert self._query is not None
        recent = [json.loads(progress.json) for progress in self._query.recentProgress]
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

    def _failure(self, error: Exception) -> HeadraceError:
        """Spark's failure as an error of headrace. Only Spark sees what callables return."""
        if (gap := self._gaps.found(self.reached)) is not None:
            return gap
        if (found := _NOT_ALLOWED.search(str(error))) is None:
            return failure_of(self.step.name, self._checkpoint.path, None, error)
        python = "Python" in found[1]
        what = (
            "calls a function in Python"
            if python
            else f"needs {found[1]}, which Spark does not support"
        )
        instead = "Write it in Spark SQL, or leave out latency='real-time'"
        return refused(self.step.name, Reason(f"it {what}", instead, self.step.stream.where))
