"""Pipelines on Kafka that need commits: their topics are landed, and their results are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.application.run import Run, StepProgress
from headrace.clock import VirtualClock
from headrace.log import Log, open_log
from headrace.pipeline.stream import Source
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.source_options import BatchLimits
from headrace.runtime.landing.landings import landed_log
from headrace.testing import LANDING_POINTS, Crash, Results, ScriptedLog, crash_at
from tests import kafka
from tests.property.joining import counted
from tests.recovery.joined import NOW, declare, feed, judge
from tests.spark import shuffling
from tests.waiting import wait_until

HOUR = timedelta(hours=1)

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for this module alone, because the pipelines choose the topic names."""
    with kafka.running(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster.state().url


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))


class Script(ScriptedLog):
    """A scripted log on Kafka, in real time."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, VirtualClock(NOW))

    def write(
        self, topic: str | Source, *rows: Mapping[str, Any], at: datetime | None = None
    ) -> int:
        name = topic if isinstance(topic, str) else self.log.ensure_topic(topic.topic).name
        with self.log.producer() as producer:
            for row in rows:
                producer.send(name, dict(row))
        return 0


def run(
    app: hr.App, log: Log, *, max_rows: int = 1_000, crash_point: CrashPoint = nothing
) -> tuple[StepProgress, ...]:
    """Run an application until it has caught up."""
    batch_limits = BatchLimits(max_rows)
    with Run(
        app,
        log,
        until_caught_up=True,
        spark=shuffling(2),
        batch_limits=batch_limits,
        crash_point=crash_point,
    ) as running:
        running.wait()
        return tuple(running.progress())


def judged(app: hr.App, log: Log, progress: tuple[StepProgress, ...]) -> dict[str, Counter[str]]:
    """Compare the results on Kafka with the oracle's for the landed topics."""
    with landed_log(log, app.name, app.topics.values()) as landed:
        return judge(app, Results(landed, app.name, progress))


@pytest.mark.slow
def test_joins_and_lookups_on_kafka_are_the_oracles(url: str) -> None:
    with open_log(url) as log:
        app = declare("landed")
        for seed in range(2):
            feed(Script(log), app, seed, 15, begin=seed * 15)
            progress = run(app, log)
        found = judged(app, log, progress)
        assert all(found.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_landing_can_crash_anywhere(url: str) -> None:
    with open_log(url) as log:
        app = declare("crashing")
        for seed, point in enumerate(LANDING_POINTS):
            feed(Script(log), app, seed, 6, begin=seed * 6)
            with pytest.raises(Crash):
                run(app, log, crash_point=crash_at(point))
        found = judged(app, log, run(app, log))
        assert found["pairs"]
        assert found["known"]
        with landed_log(log, app.name, app.topics.values()) as landed:
            for topic in app.topics:
                there, here = (rows_of(each, topic) for each in (log, landed.inside))
                assert there == here


def rows_of(log: Log, topic: str) -> Counter[str]:
    return counted([record.value for batch in log.read(topic) for record in batch.records()])


def test_what_is_no_row_is_a_dead_letter_and_the_rest_is_landed(url: str) -> None:
    app = hr.App("garbage")
    users = app.topic(
        "garbage.users", schema="id string, name string, at timestamp", key="id", event_time="at"
    )
    app.publish("garbage.once", hr.deduplicate(users, by="id", ttl=timedelta(days=1), delay=HOUR))
    with open_log(url) as log:
        log.ensure_topic(users.topic)
        with log.producer() as producer:
            producer.send("garbage.users", {"id": "a", "name": "ann", "at": NOW})
            producer.send("garbage.users", None, key="a")
        kafka_producer = Producer({"bootstrap.servers": url.removeprefix("kafka://")})
        for value in (b"{garbage", b"\xff\x00", b'{"id": "b", "at": "2026-01-01T12:00:00Z"}'):
            kafka_producer.produce("garbage.users", value, key=b"b")
        kafka_producer.flush()
        run(app, log)
        dead = [r.value for batch in log.read("garbage.dead") for r in batch.records()]
        once = [r.value["id"] for batch in log.read("garbage.once") for r in batch.records()]
    assert sorted(once) == ["a", "b"]
    assert {(x["reason"], x["row"]) for x in dead} == {
        ("does not decode", '{"value":"{garbage"}'), ("does not decode", '{"bytes":"ff00"}'),
    }  # fmt: skip


@pytest.mark.slow
def test_how_far_a_landing_is_can_be_seen_from_outside(url: str) -> None:
    app = hr.App("seen")
    users = app.topic("seen.users", schema="id string, at timestamp", event_time="at", partitions=2)
    app.publish("seen.once", hr.deduplicate(users, by="id", ttl=timedelta(days=1), delay=HOUR))
    with open_log(url) as log:
        log.ensure_topic(users.topic)

        def send(count: int, partition: int) -> None:
            with log.producer() as producer:
                for n in range(count):
                    producer.send("seen.users", {"id": f"{n}", "at": NOW}, partition=partition)

        def lags() -> list[int]:
            return [lag.records for lag in log.group("seen.landing").lags]

        send(3, 0)
        send(2, 1)
        with Run(app, log, until_caught_up=True, spark=shuffling(2)) as done:
            done.wait()
            send(4, 1)
            (step,) = done.progress()
        assert (step.lag, step.lags) == (4, {"seen.users": (0, 4)})
        wait_until(lambda: lags() == [0, 4])
        with Run(app, log, until_caught_up=True, spark=shuffling(2)) as done:
            done.wait()
            (step,) = done.progress()
        assert (step.lag, step.law.rows) == (0, 9)
        wait_until(lambda: lags() == [0, 0])
