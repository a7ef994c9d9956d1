"""The rows of a step by Spark: the step runs on a copy of a part of the log, in a folder that goes.

The copy has the same commits at the same times, so the same rows are late.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.application.run import Run
from headrace.clock import VirtualClock, to_datetime
from headrace.log import Batch, Log, Topic, TopicSettings, Transaction, open_log
from headrace.log.sample import Sample
from headrace.oracle.rows import Row
from headrace.pipeline.app import App
from headrace.pipeline.stream import Late, Stream
from headrace.runtime.session import spark_session
from headrace.store import open_views

_APP = "headrace.show"
_SHOWN = "headrace.shown"


def computed(stream: Stream, samples: Sequence[Sample], spark: SparkSession | None) -> list[Row]:
    """The rows of a stream over samples of its topics, by a session that is made if need be."""
    spark = spark or spark_session()
    app = App(_APP)
    _declare(app, stream)
    with tempfile.TemporaryDirectory(prefix="headrace-show-") as folder:
        clock = VirtualClock(0)
        with open_log(f"file:{folder}", clock=clock) as log:
            copy(samples, log, clock)
            with Run(app, log, until_caught_up=True, spark=spark, changelogs=False) as running:
                running.wait()
            if _SHOWN not in app.views:
                batches = log.read(_SHOWN)
                rows = [record.value for batch in batches for record in batch.records()]
            else:
                with open_views(log.home, app=_APP) as views:
                    rows = views.to_arrow(_SHOWN).to_pylist()
    return [{name: row[name] for name in stream.columns} for row in rows]


def _declare(app: App, stream: Stream) -> None:
    """Declare a view of a stream if it can have one, else an output."""
    if isinstance(stream, Late):
        if stream.of.view_key is None:
            app.publish("headrace.in_time", stream.of)
        else:
            app.view("headrace.in_time", stream.of)
    if stream.view_key is None:
        app.publish(_SHOWN, stream)
    else:
        app.view(_SHOWN, stream)


def copy(samples: Iterable[Sample], log: Log, clock: VirtualClock) -> None:
    """Append samples to an empty log, commit by commit."""
    batches: list[Batch] = []
    frontiers: list[tuple[int, str, int]] = []
    for sample in samples:
        log.ensure_topic(_plain(sample.topic))
        batches += sample.batches
        name = sample.topic.name
        if sample.commits and (before := sample.commits[0].before) is not None:
            frontiers.append((0, name, before))
        for commit in sample.commits:
            if not commit.rows and commit.after is not None:
                frontiers.append((commit.number, name, commit.after))
    frontiers.sort()
    batches.sort(key=lambda batch: batch.commit or 0)
    with log.producer(acks="written") as producer:
        for number, group in itertools.groupby(batches, key=lambda batch: batch.commit or 0):
            while frontiers and frontiers[0][0] < number:
                _advance(log, frontiers.pop(0))
            together = list(group)
            clock.sleep(max(batch.timestamp for batch in together) - clock.now())
            with producer.transaction() as transaction:
                for batch in together:
                    _append(transaction, batch)
    for left in frontiers:
        _advance(log, left)


def _plain(topic: Topic) -> Topic:
    """The topic with those settings alone that change what its rows mean."""
    kept = topic.settings
    settings = TopicSettings(
        skew=kept.skew, frontier=kept.frontier, max_record_bytes=kept.max_record_bytes
    )
    return replace(topic, settings=settings)


def _advance(log: Log, to: tuple[int, str, int]) -> None:
    _, topic, moment = to
    log.advance(topic, to_datetime(moment), ahead=True)


def _append(transaction: Transaction, batch: Batch) -> None:
    if batch.tombstones is None:
        transaction.append(batch.topic, batch.data, partition=batch.partition)
        return
    for record in batch.records():
        transaction.send(batch.topic, record.value, key=record.key, partition=record.partition)
