"""The landing of one topic: a stream of Spark from a broker into the embedded log."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import HeadraceError, PipelineError
from headrace.log import Log, Topic
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.gaps import Gaps
from headrace.plan.kafka.connection import Tell
from headrace.plan.kafka.decode import Decoder
from headrace.plan.kafka.source import stream
from headrace.plan.position import Position
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import dead_letters_of
from headrace.runtime.failures import answering, failure_of, java_is_gone
from headrace.runtime.landing.landed import Landed, LandingTable
from headrace.runtime.landing.parting import part
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import Database

MAX_ROWS = 200_000
"""Rows of a batch, which the driver has in its hands at once."""


@dataclass(frozen=True)
class Into:
    """Where a landing goes: the embedded log, and what is remembered with the results."""

    log: Log
    database: Database
    outbox: Outbox


class Landing:
    """Copies one topic, each row once. What does not fit the topic's columns is a dead letter."""

    def __init__(
        self,
        spark: SparkSession,
        app: str,
        topic: Topic,
        broker: Log,
        checkpoint: Path,
        into: Into,
        tell: Tell,
        *,
        max_rows: int = MAX_ROWS,
        crash_point: CrashPoint = nothing,
    ) -> None:
        assert topic.schema is not None
        self._spark = spark
        self.name = f"landing of {topic.name}"
        self._app = app
        self._topic = topic
        self._broker = broker
        self._checkpoint = checkpoint
        self._into = into
        self._max_rows = min(max_rows, MAX_ROWS)
        self._crash_point = crash_point
        self._tell = tell
        self._table = LandingTable(into.database)
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._producer = into.log.producer(id=f"{app}.{into.database.generation}.{topic.name}")

    @property
    def landed(self) -> Landed:
        """How far it is."""
        with self._into.database.reading() as db:
            return self._table.find(db, self._topic.name)

    def lags(self) -> tuple[int, ...]:
        """How many records of each partition of the broker's are not here yet."""
        name, offsets = self._topic.name, self.landed.offsets
        return tuple(
            state.end - max(state.first, offsets.get(state.partition, 0))
            for state in self._broker.topic(name).partitions
        )

    # Running

    def start(self, *, until_caught_up: bool) -> None:
        """Start in the background, to go on and on, or until what the broker has now is here."""
        self._error = None
        landed = self.landed
        self._gaps = Gaps(self._broker, self.name, [self._topic.name])
        self._gaps.check(self._reached(landed))
        self._check_checkpoint(landed)
        try:
            writer = (
                self._decoded(landed)
                .writeStream.queryName(f"{self._app}.{self.name}")
                .option("checkpointLocation", str(self._checkpoint))
                .foreachBatch(self._batch)
            )
            if until_caught_up:
                writer = writer.trigger(availableNow=True)
            self._query = writer.start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None

    def _check_checkpoint(self, landed: Landed) -> None:
        """Return if it can go on from its checkpoint, or from what was stored without it."""
        query = self._query_id()
        if query is not None and landed.query in (None, query):
            return
        if self._producer.next_sequence > landed.sequence:
            # It says which rows these are, and another batch would be taken for the same one.
            raise PipelineError(
                f"The {self.name} was interrupted in the middle of a batch, and its checkpoint in "
                f"{self._checkpoint} is gone",
                hint="Run the application with --fresh: everything is landed and computed again",
            )
        # As a stream with a new name it goes on from the offsets that were stored.
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by itself within so many seconds; its failure is raised."""
        assert self._query is not None
        try:
            return bool(self._query._jsq.awaitTermination(int(seconds * 1000)))
        except StreamingQueryException as error:
            raise self._failure(error) from self._error
        except (Py4JError, OSError) as error:
            raise java_is_gone(self.name) from error

    def stop(self) -> None:
        """Stop, once the batch under way is done or given up."""
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()

    def close(self) -> None:
        self._producer.close()

    # A batch

    def _decoded(self, landed: Landed) -> DataFrame:
        """The records of the topic, each with its row, or without if it is none."""
        start = self._reached(landed)[self._topic.name]
        batch_limits, tasks = (
            BatchLimits(self._max_rows),
            self._spark.sparkContext.defaultParallelism,
        )
        records = stream(self._spark, self._broker, self._topic.name, start, batch_limits, tasks)
        return Decoder.of(self._topic).whole(records)

    def _batch(self, frame: DataFrame, number: int) -> None:
        with answering(self._note):
            self._crash_point("landing began")
            query = self._query_id()
            assert query is not None
            landed = self.landed
            if not landed.has(query, number):
                self._land(frame, replace(landed, query=query, batch=number))

    def _note(self, error: BaseException) -> None:
        self._error = error

    def _land(self, frame: DataFrame, landed: Landed) -> None:
        self._gaps.check_topics()
        # In the order of the topic, however many tasks have read it: a batch that is landed again
        # is cut as it was.
        records = frame.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
        parted = part(records, self._topic, self.name)
        sequence = landed.sequence
        for rows, flags in parted.parts():
            self._producer.append(self._topic.name, rows, sequence=sequence, tombstones=flags)
            sequence += 1
            self._crash_point("landed")
        dead = parted.dead.num_rows
        with self._into.database.writing() as db:
            if dead:
                put(db, dead_letters_of(self._app), parted.dead)
            self._into.outbox.forget_sent(db)
            now = replace(
                landed,
                offsets=self._ends(landed.batch),
                sequence=sequence,
                rows=landed.rows + records.num_rows,
                dead=landed.dead + dead,
            )
            self._table.put(db, self._topic.name, now)
            self._crash_point("before landing commit")
        self._crash_point("landing committed")
        self._into.outbox.send()
        self._tell(self._reached(now))

    def _reached(self, landed: Landed) -> dict[str, Position]:
        offsets = tuple(landed.offsets[partition] for partition in sorted(landed.offsets))
        return {self._topic.name: Position(0, offsets)}

    # What Spark knows

    def _ends(self, batch: int) -> dict[int, int]:
        """Up to where a batch goes, as Spark has written it down before it began."""
        lines = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
        ends = json.loads(lines[-1])[self._topic.name]
        return {int(partition): int(end) for partition, end in ends.items()}

    def _query_id(self) -> str | None:
        """The stream's own id. It is in its checkpoint, and ends with it."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((self._checkpoint / "metadata").read_text())["id"])
        return None

    def _failure(self, error: Exception) -> HeadraceError:
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error
        found = failure_of(self.name, self._checkpoint, self._error, error)
        return self._gaps.found(self._reached(self.landed)) or found
