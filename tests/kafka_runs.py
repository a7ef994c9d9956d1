"""Applications on a Kafka broker, and the oracle's results for the batches that they made."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import headrace as hr
from headrace.application.run import Run
from headrace.clock import to_micros
from headrace.log import Log, open_log
from headrace.log.record import Record
from headrace.log.state import Topic
from headrace.oracle.events import Event
from headrace.pipeline.stream import Source, sources
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.source_options import BatchLimits
from headrace.testing import Results

Sent = Mapping[str, Any] | bytes | None
"""A row, the bytes of an undecodable record, or a tombstone."""


@dataclass
class Runs:
    """A log on a shared broker; `tag` makes its names unique."""

    log: Log
    servers: str
    spark: SparkSession
    tag: str

    def name(self, what: str) -> str:
        return f"{what}-{self.tag}"

    def send(self, topic: str | Source, *sent: Sent, partition: int | None = None) -> None:
        """Write records as any client would; without a partition, round robin over all."""
        if isinstance(topic, Source):
            topic = self.log.ensure_topic(topic.topic).name
        count = len(self.log.topic(topic).partitions)
        settings = {"bootstrap.servers": self.servers, "linger.ms": 0}
        producer = Producer({**settings, "message.max.bytes": 8 << 20})
        for number, one in enumerate(sent):
            value = orjson.dumps(dict(one)) if isinstance(one, Mapping) else one
            place = number % count if partition is None else partition
            producer.produce(topic, value, b"key", place)
        producer.flush()

    def run(
        self,
        app: hr.App,
        *,
        max_rows: int = 1_000_000,
        fresh: bool = False,
        crash_point: CrashPoint = nothing,
    ) -> Results:
        """Run until caught up, in batches of about `max_rows` rows."""
        with Run(
            app,
            self.log,
            until_caught_up=True,
            spark=self.spark,
            batch_limits=BatchLimits(max_rows=max_rows),
            fresh=fresh,
            crash_point=crash_point,
        ) as running:
            running.wait()
            return Results(self.log, app.name, tuple(running.progress()))

    def events(self, stream: hr.Stream) -> list[Event]:
        """The rows of a stream's topics, each with its commit.

        A row meets the highest event time before it in its own partition, whatever the commit.
        """
        events: list[Event] = []
        for topic in {source.topic.name: source.topic for source in sources(stream)}.values():
            frontiers: dict[int, int] = {}
            for record in self._records(topic):
                frontier = frontiers.get(record.partition)
                event = Event(
                    topic,
                    record.commit or 0,
                    record.partition,
                    record.offset,
                    to_micros(record.timestamp),
                    frontier,
                    record.value,
                )
                events.append(event)
                if event.dead is None and event.event_time is not None:
                    frontiers[record.partition] = max(
                        event.event_time, event.event_time if frontier is None else frontier
                    )
        return sorted(events, key=lambda event: event.commit)

    def _records(self, topic: Topic) -> Iterator[Record]:
        for batch in self.log.read(topic.name):
            for record in batch.records():
                if record.value is not None:
                    yield record


@contextmanager
def runs(servers: str, spark: SparkSession) -> Iterator[Runs]:
    """Runs on a broker, with unique names."""
    tag = uuid.uuid4().hex[:8]
    with open_log(f"kafka://{servers}") as log:
        yield Runs(log, servers, spark, tag)


def letters(results: Results, app: str) -> list[tuple[int, int, str, str]]:
    """The dead letters of an application: partition, offset, reason and row."""
    found = results.topic(f"{app}.dead")
    return sorted((r["partition"], r["offset"], r["reason"], r["row"]) for r in found)
