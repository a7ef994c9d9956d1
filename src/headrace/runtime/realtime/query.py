"""One step as a query in real time: started, watched and stopped."""

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
"""How Spark says that it cannot do something row by row, and what it is."""


def live_owner(step: Step) -> dict[str, Any]:
    """Whose a checkpoint is: a step's as it is declared, in real time."""
    return {
        "app": step.app,
        "step": step.name,
        "fingerprint": fingerprint(step),
        "latency": "real-time",
    }


class RealTimeQuery:
    """Runs one step. What is known of it is in its checkpoint, and nowhere else."""

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
        """What became of all rows since it was started first."""
        self.reached: Mapping[str, Position] = {}
        """Up to where Spark has written down that it is, by topic."""

    def start(self) -> None:
        """Start, from where the checkpoint says or from the beginning of the topics."""
        self._checkpoint.claim(live_owner(self.step))
        self._seen = -1
        read = [topic.name for topic in topics_of(self.step)]
        self._gaps = Gaps(self._log, self.step.name, read)
        if (last := self._checkpoint.last_done()) >= 0:
            self.reached = self._checkpoint.end_of(last)
            self._gaps.check(self.reached)
        self._tell_letters()
        writer = (
            self.plan.records.writeStream.queryName(f"{self.step.app}.{self.step.name}")
            .format("kafka")
            .options(**self._connection, **WRITING)
            .option("checkpointLocation", str(self._checkpoint.path))
            .outputMode("update")
        )
        # Spark's own types do not know of this trigger yet.
        trigger: Any = writer.trigger
        try:
            with set_meanwhile(self._spark, QUERY_SETTINGS):
                self._query = trigger(realTime=self._settings.trigger).start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within so many seconds; what made it fail is raised."""
        assert self._query is not None
        try:
            ended = await_end(self._query, seconds)
            if self._look_back():
                self._check_topics()
        except StreamingQueryException as error:
            raise self._failure(error) from None
        except (Py4JError, OSError) as error:
            raise java_is_gone(self.step.name) from error
        return ended

    def stop(self) -> None:
        """Stop at once. What came since the last checkpoint is read again by the next run."""
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()
                self._look_back()

    @property
    def progress(self) -> Mapping[str, Any]:
        """What Spark says of its last batch."""
        last = self._query.lastProgress if self._query is not None else None
        return json.loads(last.json) if last is not None else {}

    def _look_back(self) -> bool:
        """Whether batches have ended since, and in each of them every row is accounted for."""
        assert self._query is not None
        recent = [json.loads(progress.json) for progress in self._query.recentProgress]
        ended = [told for told in recent if told["batchId"] > self._seen]
        for told in ended:
            self._seen = told["batchId"]
            law = self.plan.counting.law(told)
            check(self.step.name, law, told)
            self.law += law
            self.reached = {
                topic: Position(0, tuple(offsets[p] for p in sorted(offsets, key=int)))
                for source in told["sources"]
                for topic, offsets in (source.get("endOffset") or {}).items()
            }
            self._tell(self.reached)
        if ended:
            self._tell_letters()
        return bool(ended)

    def _check_topics(self) -> None:
        """Return if its topics are not others by now. A broker that is away tells of itself."""
        with contextlib.suppress(LogUnavailable):
            self._gaps.check_topics()

    def _tell_letters(self) -> None:
        """Tell what is no row of the table. What cannot be told now is told at the next time."""
        if self._letters is not None:
            try:
                self._letters.tell()
            except (Retryable, PySparkException) as error:
                logger.warning("the table of %s was not looked through: %s", self.step.name, error)

    def _failure(self, error: Exception) -> HeadraceError:
        """What Spark says, as an error of ours. What callables make, it is the first to see."""
        if (gap := self._gaps.found(self.reached)) is not None:
            return gap
        if (found := _NOT_ALLOWED.search(str(error))) is None:
            return failure_of(self.step.name, self._checkpoint.path, None, error)
        python = "Python" in found[1]
        what = "calls a function in Python" if python else f"needs what Spark has not: {found[1]}"
        instead = "Say it in Spark SQL, or leave latency='real-time' away"
        return refused(self.step.name, Reason(f"it {what}", instead, self.step.stream.where))
