"""Counts by window from a Kafka topic into a view, against hand-written PySpark.

The benchmark starts a broker and fills topics of JSON and Avro. `json` and `avro`: events/s until a
view has caught up, with our defaults, which publish late rows and dead letters and check the law,
against `bench/baselines/kafka_by_hand.py` with Spark's defaults. `*_same_source`: against the same
query with our settings of Kafka's source, and `*_settings` the gain of that query from them.
`source_*`: the gain from each of them alone; `state_memory`, `shuffle_cores` and `codegen` the same
for Spark's configuration, all on fewer events. `json_in_time`: a topic without late events.
`relay`: rows/s from topic to topic, exactly once, against Spark's own Kafka sink, which is at least
once, also on fewer events.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

import headrace as hr
from bench.baselines import hand_written, kafka_by_hand
from bench.measure import Progress, Result, best_of, rate, report, seconds
from headrace.application.run import Run
from headrace.log import open_log
from headrace.log.home import STATE
from headrace.log.kafka.avro import avro_schema
from headrace.plan.kafka.source import READING
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import STATE_STORES, set_meanwhile, spark_session
from headrace.schema.ddl import parse_schema
from headrace.servers.java import jars
from headrace.servers.kafka import Cluster

SCHEMA = "url string, user string, at timestamp"
PARTITIONS = 2
SIZE = timedelta(minutes=1)
DELAY = timedelta(seconds=10)
EVENTS_PER_SECOND = 2_000
KEYS = 1_000
HOUR = 3_600_000_000
LATE = 10_000
"""One in this many rows comes an hour late."""

_BEGIN = 1_767_225_600_000_000

_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """A topic and a query on it."""

    spark: SparkSession
    servers: str
    home: Path
    topic: str
    events: int
    format: str
    batch_rows: int

    def ours(self) -> float:
        """Seconds until a new view has caught up."""
        app = hr.App(f"ours-{next(_numbers)}")
        views = app.topic(
            self.topic,
            schema=SCHEMA,
            key="url",
            event_time="at",
            partitions=PARTITIONS,
            settings={"format": self.format},
        )
        hits = hr.aggregate(
            views,
            by="url",
            window=hr.tumbling(SIZE),
            lateness=hr.Lateness(delay=DELAY, grace=timedelta(0)),
            hits=hr.count(),
        )
        app.view("hits", hits, key=["url", "window_start"])
        return self._run(app)

    def relay(self) -> float:
        """Seconds until all rows are in another topic."""
        app = hr.App(f"ours-{next(_numbers)}")
        views = app.topic(
            self.topic,
            schema=SCHEMA,
            key="url",
            event_time="at",
            partitions=PARTITIONS,
            settings={"format": self.format},
        )
        app.publish(f"{app.name}.out", hr.derive(views, url="lower(url)"))
        return self._run(app)

    def _run(self, app: hr.App) -> float:
        def work() -> None:
            with Run(
                app,
                f"kafka://{self.servers}",
                until_caught_up=True,
                spark=self.spark,
                batch_limits=BatchLimits(max_rows=self.batch_rows),
            ) as run:
                run.wait()
                (step,) = run.progress()
            assert step.law.rows == self.events, step.law

        return seconds(work)

    def by_hand(
        self, options: Mapping[str, str] | None = None, conf: Mapping[str, str] | None = None
    ) -> float:
        """Seconds until a new hand-written table has caught up, with these settings of Spark."""
        folder = self.home / f"by-hand-{next(_numbers)}"

        def work() -> None:
            kafka_by_hand.start(
                self.spark,
                self.servers,
                self.topic,
                folder,
                schema=SCHEMA,
                avro=avro_schema(parse_schema(SCHEMA)) if self.format == "avro" else None,
                size=SIZE,
                delay=DELAY,
                batch_rows=self.batch_rows,
                options=options or {},
            ).awaitTermination()

        with set_meanwhile(self.spark, conf or {}):
            spent = seconds(work)
        missing = self.events - hand_written.counted(folder)
        assert 0 <= missing <= self.events // LATE * 2 + 1, missing
        return spent

    def relay_by_hand(self) -> float:
        """Seconds until Spark's own sink has written all rows to another topic."""
        topic, folder = f"by-hand-{next(_numbers)}", self.home / f"by-hand-{next(_numbers)}"
        with open_log(f"kafka://{self.servers}") as log:
            log.create_topic(topic, partitions=1)

        def work() -> None:
            kafka_by_hand.relay(
                self.spark, self.servers, self.topic, topic, folder,
                schema=SCHEMA, batch_rows=self.batch_rows,
            ).awaitTermination()  # fmt: skip

        return seconds(work)


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    events, few, rounds = (20_000, 20_000, 1) if quick else (10_000_000, 2_000_000, 3)
    batch_rows = min(few // 2, BatchLimits.max_rows) if quick else BatchLimits.max_rows
    settings = {
        "events": events,
        "few_events": few,
        "keys": KEYS,
        "partitions": PARTITIONS,
        "batch_rows": batch_rows,
        "delay_seconds": DELAY.total_seconds(),
        "late": f"1 in {LATE:,}",
        "rounds": rounds,
    }
    results = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        os.environ[STATE] = str(home / "state")
        cluster = Cluster(home / "kafka")
        try:
            progress("a Kafka broker")
            servers = cluster.up(1, 0, memory="1g").url.removeprefix("kafka://")
            spark = spark_session(log_file=home / "spark.log", jars=jars("spark-kafka"))

            def job(topic: str, format: str, events: int, *, late: bool = True) -> Job:
                progress(f"a topic of {events:,} events in {format}")
                _fill(spark, servers, topic, events, format, late=late)
                return Job(spark, servers, home, topic, events, format, batch_rows)

            for made in (job("json", "json", events), job("avro", "avro", events)):
                progress(made.topic)
                results += _counted(made, rounds)
            progress("settings of Kafka's source")
            json = job("few", "json", few)
            results += _settings(json, rounds)
            in_time = job("in_time", "json", events, late=False)
            progress("in time")
            ours, by_hand = best_of(rounds, in_time.ours, in_time.by_hand)
            results.append(
                rate("json_in_time", "events/s", events, ours, kafka_by_hand.NAME, by_hand)
            )
            progress("relay")
            ours, by_hand = best_of(rounds, json.relay, json.relay_by_hand)
            results.append(
                rate("relay", "rows/s", few, ours, "Spark's own sink, at least once", by_hand)
            )
        finally:
            cluster.down(remove=True)
    return report("kafka", settings, results)


def _counted(job: Job, rounds: int) -> list[Result]:
    ours, plain, same = best_of(rounds, job.ours, job.by_hand, lambda: job.by_hand(_source()))
    name, events, unit = job.topic, job.events, "events/s"
    return [
        rate(name, unit, events, ours, kafka_by_hand.NAME, plain),
        rate(f"{name}_same_source", unit, events, ours, "by hand, with our settings", same),
        rate(f"{name}_settings", unit, events, same, "by hand, with Spark's settings", plain),
    ]


def _settings(job: Job, rounds: int) -> list[Result]:
    """The gain of the hand-written query from each setting alone."""
    tried = {
        "source_poll": {name: READING[name] for name in ("kafka.max.poll.records",)},
        "source_fetch": {name: READING[name] for name in ("kafka.max.partition.fetch.bytes",)},
        "source_committed": {name: READING[name] for name in ("kafka.isolation.level",)},
    }
    plain, *found = best_of(
        rounds, job.by_hand, *(functools.partial(job.by_hand, made) for made in tried.values())
    )
    results = [
        rate(name, "events/s", job.events, spent, "Spark's default", plain)
        for name, spent in zip(tried, found, strict=True)
    ]
    source = _source()
    ours, *others = best_of(
        rounds,
        lambda: job.by_hand(source),
        *(functools.partial(job.by_hand, source, conf) for conf in _OTHERS.values()),
    )
    return results + [
        rate(name, "events/s", job.events, ours, baseline, spent)
        for (name, baseline), spent in zip(_OTHERS, others, strict=True)
    ]


_OTHERS = {
    ("state_memory", "state in RocksDB"): {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES["rocksdb"]
    },
    ("shuffle_cores", "200 shuffle partitions"): {"spark.sql.shuffle.partitions": "200"},
    ("codegen", "without generated code"): {"spark.sql.codegen.wholeStage": "false"},
}
"""Alternatives to our settings: the result's name, and the label of the alternative."""


def _source() -> dict[str, str]:
    return {**READING, "minPartitions": str(len(os.sched_getaffinity(0)))}


def _fill(
    spark: SparkSession, servers: str, topic: str, events: int, format: str, *, late: bool
) -> None:
    with open_log(f"kafka://{servers}") as log:
        log.create_topic(
            topic,
            partitions=PARTITIONS,
            schema=SCHEMA,
            key="url",
            event_time="at",
            settings={"format": format},
        )
    number = F.xxhash64("id", F.lit(1))
    moment = F.lit(_BEGIN) + F.col("id") * (1_000_000 // EVENTS_PER_SECOND)
    moment += F.pmod(number, F.lit(5_000_000))
    if late:
        moment -= F.when(F.pmod(F.xxhash64("id", F.lit(2)), F.lit(LATE)) == 0, HOUR).otherwise(0)
    url = F.format_string("/page/%07d", F.pmod(F.xxhash64("id", F.lit(3)), F.lit(KEYS)))
    user = F.format_string("user-%06d", F.pmod(F.xxhash64("id", F.lit(4)), F.lit(100_000)))
    row = F.struct(url.alias("url"), user.alias("user"), F.timestamp_micros(moment).alias("at"))
    value = (
        to_avro(row, avro_schema(parse_schema(SCHEMA)))
        if format == "avro"
        else F.to_json(row, {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"})
    )
    # A single task, so that times increase in each partition.
    rows = spark.range(0, events, 1, 1).select(url.alias("key"), value.alias("value"))
    rows.write.format("kafka").options(
        **{"kafka.bootstrap.servers": servers, "topic": topic, "kafka.linger.ms": "50"}
    ).save()
