"""On Kafka, a row is judged by the rows before it in its partition, not by its batch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.pipeline.stream import Source
from headrace.runtime.session import set_meanwhile
from headrace.servers.kafka.state import ClusterState
from headrace.testing import Crash, crash_at
from tests.kafka_runs import Runs, letters, runs
from tests.spark import shared

pytestmark = pytest.mark.service

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "k string, n bigint, at timestamp"
LATENESS = hr.Lateness(10 * SECOND, 20 * SECOND)
PARTITIONS = 3
WINDOWS: Mapping[str, hr.Window | hr.Session] = {
    "tumbling": hr.tumbling(60 * SECOND),
    "hopping": hr.hopping(90 * SECOND, 30 * SECOND),
    "session": hr.session(20 * SECOND),
}


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


@dataclass(frozen=True)
class Reading:
    """One way to read a topic: rows per batch, shuffle partitions, and where it crashes."""

    max_rows: int
    shuffles: int
    crashes: tuple[tuple[str, int], ...] = ()


def unordered(count: int) -> Iterator[tuple[int, dict[str, Any] | bytes]]:
    """Rows of three partitions, of which the last is an hour behind; 20 % are out of order."""
    chance = random.Random(7)
    for number in range(count):
        partition = number % PARTITIONS
        second = number / 10 - (3_600 if partition == 2 else 0)
        if chance.random() < 0.2:
            second -= chance.choice([5, 29, 31, 60, 90, 300])
        at: datetime | None = BEGIN + second * SECOND
        if chance.random() < 0.01:
            at = chance.choice([None, BEGIN.replace(year=2100)])
        broken = chance.random() < 0.005
        yield (
            partition,
            b"garbage" if broken else {"k": f"k{number % 7}", "n": number, "at": at},
        )


def topic_of(kafka: Runs, app: hr.App) -> Source:
    return app.topic(kafka.name("rows"), schema=SCHEMA, event_time="at", partitions=PARTITIONS)


def counts(kafka: Runs, number: int) -> hr.App:
    """An application that counts the rows in windows of every kind."""
    app = hr.App(kafka.name(f"counts{number}"))
    rows = hr.filter(topic_of(kafka, app), "n % 10 != 3")
    for kind, window in WINDOWS.items():
        step = hr.aggregate(
            rows, by="k", window=window, lateness=LATENESS,
            rows=hr.count(), total=hr.sum("n"), newest=hr.last("n"),
        )  # fmt: skip
        app.view(kind, step)
        app.publish(f"{app.name}.{kind}", step.late)
    return app


def outcome(kafka: Runs, number: int, reading: Reading) -> dict[str, list[str]]:
    """All results of an application of its own: views, late rows, dead letters and laws."""
    app = counts(kafka, number)
    settings = {"spark.sql.shuffle.partitions": str(reading.shuffles)}
    with set_meanwhile(kafka.spark, settings):
        for point, nth in reading.crashes:
            with contextlib.suppress(Crash):
                crash = crash_at(point, nth)
                kafka.run(app, max_rows=reading.max_rows, crash_point=crash)
                pytest.fail(f"it did not crash at {point!r}")
        results = kafka.run(app, max_rows=reading.max_rows)
    found = {"dead": sorted(map(repr, letters(results, app.name)))}
    for kind in WINDOWS:
        rows = [row | {"_revision": None} for row in results.view(kind)]
        found[kind] = sorted(map(repr, rows))
        found[f"{kind} late"] = sorted(map(repr, results.topic(f"{app.name}.{kind}")))
        law = results.law(kind)
        assert law.holds
        found[f"{kind} law"] = [str(law)]
    return found


def same_however_it_is_read(kafka: Runs, count: int, *readings: Reading) -> None:
    rows = list(unordered(count))
    for partition in range(PARTITIONS):
        mine = [row for place, row in rows if place == partition]
        kafka.send(topic_of(kafka, hr.App("rows")), *mine, partition=partition)
    first, *others = (outcome(kafka, number, one) for number, one in enumerate(readings))
    for kind in WINDOWS:
        assert first[f"{kind} late"], kind
    assert first["dead"]
    for reading, found in zip(readings[1:], others, strict=True):
        for what, these in found.items():
            assert these == first[what], (what, reading)


def test_lateness_depends_neither_on_the_batch_nor_on_a_crash(kafka: Runs) -> None:
    crashed = Reading(400, 4, (("committed", 2), ("before commit", 3)))
    same_however_it_is_read(kafka, 1_200, crashed, Reading(1_000_000, 1))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_lateness_of_many_rows_depends_on_no_batch(kafka: Runs) -> None:
    same_however_it_is_read(
        kafka,
        20_000,
        Reading(1_000_000, 1),
        Reading(1_000_000, 4),
        Reading(5_000, 4),
        Reading(500, 1, (("committed", 5), ("stored outputs", 30))),
        Reading(50, 4),
    )


def test_a_window_fires_when_every_partition_has_passed_it(kafka: Runs) -> None:
    app = hr.App(kafka.name("firing"))
    rows = topic_of(kafka, app)
    window = hr.tumbling(60 * SECOND)
    app.view("hits", hr.aggregate(rows, by="k", window=window, lateness=LATENESS, hits=hr.count()))

    def state(second: float, partition: int) -> str:
        row = {"k": "a", "at": BEGIN + second * SECOND}
        kafka.send(rows, row, partition=partition)
        return str(next(r["_state"] for r in kafka.run(app).view("hits")))

    assert state(5, 0) == "open"
    assert state(500, 1) == "open"
    assert state(70, 2) == "open"
    assert state(69, 0) == "open"
    assert state(70, 0) == "fired"
    assert state(200, 0) == "fired"
    assert state(89, 2) == "fired"
    assert state(90, 2) == "final"
