"""Dead letters of a table's topic, which a query in real time reads beside its own.

A table is read anew for every batch, so that a query cannot tell of its records only once. They are
looked at apart, up to where the topic is whenever a checkpoint is written. How far that is stands
in a file, and is written down after the letters are: after a crash some may come again, as all does
in real time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.files import write_note
from headrace.log import Log, Topic
from headrace.plan.kafka.decode import Decoder
from headrace.plan.kafka.letters import letters
from headrace.plan.kafka.source import between
from headrace.plan.position import Position
from headrace.plan.steps import Step


class TableLetters:
    """Tells what of a table's topic is no row of the table. `place` is where it says how far."""

    def __init__(
        self, spark: SparkSession, log: Log, step: Step, topic: Topic, place: Path
    ) -> None:
        self._spark = spark
        self._log = log
        self._step = step
        self._topic = topic
        self._place = place

    def tell(self) -> None:
        """Write letters of all that has come since the last time."""
        name = self._topic.name
        partitions = self._log.topic(name).partitions
        end = Position(0, tuple(state.end for state in partitions))
        starts = (first for first, _ in self._known().ranges(end))
        start = tuple(map(max, starts, (state.first for state in partitions)))
        records = between(self._spark, self._log, name, Position(0, start), end)
        if records is None:
            return
        found = Decoder.of(self._topic).misplaced(records).orderBy("partition", "offset")
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
