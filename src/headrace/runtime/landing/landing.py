"""The landing of one topic: a Spark stream from a broker into the embedded log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import apsw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.errors import HeadraceError, PipelineError
from headrace.log import Log, Topic
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.gaps import Gaps
from headrace.plan.kafka.connection import Tell
from headrace.plan.kafka.decode import Decoder
from headrace.plan.kafka.schemas import learned
from headrace.plan.kafka.source import stream
from headrace.plan.position import Position
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import dead_letters_of
from headrace.runtime.landing.parting import part
from headrace.runtime.streaming import Streaming
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import LANDINGS, Database

Offsets = Mapping[int, int]
"""The next offset to read, by partition."""


@dataclass(frozen=True)
class Landed:
    """The position of the landing of a topic.

    `query` and `batch` identify the last batch of Spark, and `sequence` is the number of the next
    append to the embedded log. They are stored together with `offsets`.
    """

    offsets: Offsets
    query: str | None = None
    batch: int = -1
    sequence: int = 0
    rows: int = 0
    dead: int = 0

    def has(self, query: str, batch: int) -> bool:
        """True if a batch has already landed."""
        return self.query == query and batch <= self.batch


class LandingTable:
    """The landings of one application, in the database of its views."""

    def __init__(self, database: Database) -> None:
        with database.writing() as db:
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {LANDINGS} (topic TEXT PRIMARY KEY, "
                "offsets TEXT NOT NULL, query TEXT, batch INTEGER NOT NULL, "
                "sequence INTEGER NOT NULL, rows INTEGER NOT NULL, dead INTEGER NOT NULL)"
                " WITHOUT ROWID"
            )

    def find(self, db: apsw.Connection, topic: str) -> Landed:
        """The position of a topic; empty if it was never landed."""
        found = list(
            db.execute(
                "SELECT offsets, query, batch, sequence, rows, dead "
                f"FROM {LANDINGS} WHERE topic = ?",
                (topic,),
            )
        )
        if not found:
            return Landed({})
        ((offsets, query, batch, sequence, rows, dead),) = found
        ends = {int(partition): int(end) for partition, end in json.loads(str(offsets)).items()}
        name = None if query is None else str(query)
        return Landed(ends, name, int(batch), int(sequence), int(rows), int(dead))

    def put(self, db: apsw.Connection, topic: str, landed: Landed) -> None:
        """Store it, in a transaction."""
        db.execute(
            f"INSERT OR REPLACE INTO {LANDINGS} VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                topic, json.dumps({str(p): end for p, end in landed.offsets.items()}),
                landed.query, landed.batch, landed.sequence, landed.rows, landed.dead,
            ),
        )  # fmt: skip


MAX_ROWS = 200_000
"""Rows of a batch, all of which the driver holds in memory."""


@dataclass(frozen=True)
class Into:
    """The target of a landing: the embedded log, and the database with its position."""

    log: Log
    database: Database
    outbox: Outbox


class Landing(Streaming):
    """Copies one topic, each row once. Records that do not fit its columns are dead letters."""

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
        name = f"landing of {topic.name}"
        super().__init__(spark, name, f"{app}.{name}", checkpoint)
        self._app = app
        self._topic = topic
        self._broker = broker
        self._into = into
        self._max_rows = min(max_rows, MAX_ROWS)
        self._crash_point = crash_point
        self._tell = tell
        self._table = LandingTable(into.database)
        self._producer = into.log.producer(id=f"{app}.{into.database.generation}.{topic.name}")

    @property
    def landed(self) -> Landed:
        """The stored position."""
        with self._into.database.reading() as db:
            return self._table.find(db, self._topic.name)

    def lags(self) -> tuple[int, ...]:
        """The number of records of each partition that have not landed yet."""
        name, offsets = self._topic.name, self.landed.offsets
        return tuple(
            state.end - max(state.first, offsets.get(state.partition, 0))
            for state in self._broker.topic(name).partitions
        )

    # Running

    def start(self, *, until_caught_up: bool) -> None:
        """Start in the background, to run for ever, or until it has caught up with the broker."""
        landed = self.landed
        self._gaps = Gaps(self._broker, self.name, [self._topic.name])
        self._gaps.check(self._reached(landed))
        self._check_checkpoint(landed)

        def write() -> DataStreamWriter:
            decoded = self._decoded(landed)
            return self._in_batches(decoded, self._batch, until_caught_up=until_caught_up)

        self._start(write)

    def _check_checkpoint(self, landed: Landed) -> None:
        """Check that it can continue from its checkpoint, or from the stored position alone."""
        query = self._checkpoint.query_id
        if query is not None and landed.query in (None, query):
            return
        if self._producer.next_sequence > landed.sequence:
            # Only the checkpoint knows the rows of that batch; another batch would be taken for it.
            raise PipelineError(
                f"The {self.name} was interrupted in the middle of a batch, and its checkpoint in "
                f"{self._checkpoint.path} is gone",
                hint="Run the application with --fresh: everything is landed and computed again",
            )
        # A stream with a new id continues from the stored offsets.
        shutil.rmtree(self._checkpoint.path, ignore_errors=True)

    def close(self) -> None:
        self._producer.close()

    # A batch

    def _decoded(self, landed: Landed) -> DataFrame:
        """The records of the topic, each with its row, which is null if it does not decode."""
        start = self._reached(landed)[self._topic.name]
        batch_limits, tasks = (
            BatchLimits(self._max_rows),
            self._spark.sparkContext.defaultParallelism,
        )
        decoder = Decoder.of(self._topic, log=self._broker)
        records = stream(
            self._spark,
            self._broker,
            self._topic.name,
            start,
            batch_limits,
            tasks,
            decoder.reading,
        )
        return decoder.whole(records)

    def _batch(self, frame: DataFrame, number: int) -> None:
        self._crash_point("landing began")
        query = self._checkpoint.query_id
        assert query is not None
        landed = self.landed
        if not landed.has(query, number):
            self._land(frame, replace(landed, query=query, batch=number))

    def _land(self, frame: DataFrame, landed: Landed) -> None:
        self._gaps.check_topics()
        # In topic order, whichever tasks have read it, so that a repeated batch is split
        # in the same places.
        records = frame.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
        parted = part(records, self._topic, self.name)
        sequence = landed.sequence
        for rows, flags in parted.parts():
            self._producer.append(self._topic.name, rows, sequence=sequence, tombstones=flags)
            sequence += 1
            self._crash_point("landed")
        dead = parted.dead.num_rows
        end = self._checkpoint.end_of(landed.batch)[self._topic.name]
        with self._into.database.writing() as db:
            if dead:
                put(db, dead_letters_of(self._app), parted.dead)
            self._into.outbox.forget_sent(db)
            now = replace(
                landed,
                offsets=dict(enumerate(end.offsets)),
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

    def _translated(self, error: BaseException) -> HeadraceError:
        new = learned(self._broker, self.name, self._error or error)
        return new or super()._translated(error)

    def _gap(self) -> HeadraceError | None:
        return self._gaps.found(self._reached(self.landed))
