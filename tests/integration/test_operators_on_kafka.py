"""Steps of every kind on Kafka: their results are the oracle's, and the same in every replay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.application.run import Run
from headrace.clock import VirtualClock
from headrace.log import Log, open_log
from headrace.pipeline.stream import Source
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.source_options import BatchLimits
from headrace.testing import Crash, Results, ScriptedLog, crash_at
from tests import kafka
from tests.recovery import joined, order_tables, pipeline
from tests.recovery.pipeline import NOW, Which
from tests.spark import shuffling

pytestmark = pytest.mark.service


class Script(ScriptedLog):
    """A scripted log on Kafka. The broker's clock is real, so "ahead of it" is far ahead."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, VirtualClock(NOW))

    def write(
        self, topic: str | Source, *rows: Mapping[str, Any], at: datetime | None = None
    ) -> int:
        name = topic if isinstance(topic, str) else self.log.ensure_topic(topic.topic).name
        with self.log.producer() as producer:
            for row in rows:
                moment = row.get("at")
                ahead = moment is not None and moment > NOW + timedelta(days=1)
                later = {"at": moment.replace(year=2200)} if ahead and moment else {}
                producer.send(name, {**row, **later})
        return 0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for this module alone, because the pipelines choose the topic names."""
    with (
        kafka.running(tmp_path_factory.mktemp("kafka")) as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HEADRACE_STATE", str(tmp_path_factory.mktemp("state")))
        yield cluster.state().url


@pytest.fixture(scope="module")
def fed(url: str) -> str:
    """A log with orders in commits of at most 15 rows."""
    with open_log(url) as log:
        script = Script(log)
        pipeline.create_topic(script)
        pipeline.feed(script, pipeline.Feed(7), 40)
        log.cut([pipeline.TOPIC], rows=15)
    return url


def run(
    app: hr.App, url: str, *, max_rows: int, shuffles: int = 2, crash_point: CrashPoint = nothing
) -> Results:
    """Run an application until it has caught up. It opens a log of its own."""
    with (
        open_log(url) as log,
        Run(
            app,
            log,
            until_caught_up=True,
            spark=shuffling(shuffles),
            batch_limits=BatchLimits(max_rows),
            crash_point=crash_point,
        ) as running,
    ):
        running.wait()
        return Results(log, app.name, tuple(running.progress()))


def crashed(app: hr.App, url: str, point: str, nth: int, *, max_rows: int) -> None:
    with contextlib.suppress(Crash):
        run(app, url, max_rows=max_rows, crash_point=crash_at(point, nth))
        pytest.fail(f"it did not crash at {point!r}")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "which",
    [
        pytest.param("grid", marks=SLOW),
        "own",
        pytest.param("distinct", marks=SLOW),
        pytest.param("state", marks=SLOW),
        pytest.param("alerts", marks=SLOW),
    ],
)
def test_results_are_the_oracles_whatever_the_batches_and_crashes(fed: str, which: Which) -> None:
    found = []
    for name, max_rows, shuffles in (("small", 20, 2), ("large", 100_000, 3)):
        app, steps = pipeline.declare(f"{which}-{name}", which)
        if name == "small":
            crashed(app, fed, "before commit", 3, max_rows=max_rows)
        with open_log(fed) as log:
            done = run(app, fed, max_rows=max_rows, shuffles=shuffles)
            results = Results(log, app.name, done.steps)
            pipeline.judge(app, steps, results)
            found.append(pipeline.everything(app, results))
    assert found[0] == found[1]


@pytest.mark.slow
def test_joins_and_lookups_are_the_oracles(url: str) -> None:
    found = []
    with open_log(url) as log:
        first = joined.declare("first")
        for seed, crash in enumerate(("computed", None)):
            joined.feed(Script(log), first, seed, 12, begin=seed * 12)
            log.cut(first.topics, rows=10)
            if crash:
                crashed(first, url, crash, 2, max_rows=10)
            done = run(first, url, max_rows=10)
        found.append(joined.judge(first, Results(log, "first", done.steps)))
        second = joined.declare("second")
        done = run(second, url, max_rows=100_000)
        found.append(joined.judge(second, Results(log, "second", done.steps)))
    assert all(found[0].values())
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_range_of_the_log_is_computed_as_a_run_computes_it(fed: str) -> None:
    app, _ = pipeline.declare("ranged", "small")
    done = run(app, fed, max_rows=30)
    rows = done.view("sales")
    batch = hr.run(app, fed, over=hr.LogRange(), spark=shuffling(2)).view("sales").to_pylist()
    assert len(batch) == len(rows) > 0
    assert sorted(r["_revision"] for r in batch) == sorted(r["_revision"] for r in rows)


def test_a_view_is_rebuilt_to_the_same_rows(fed: str) -> None:
    app, _ = pipeline.declare("rebuilt", "small")
    run(app, fed, max_rows=30)
    with open_log(fed) as log:
        diff = hr.rebuild(app, "sales", log, spark=shuffling(2)).diff
        assert diff.empty, diff
        assert diff.same > 0


def test_a_window_of_an_idle_topic_closes_and_a_drained_one_too(url: str, tmp_path: Path) -> None:
    app = hr.App("draining")
    clicks = app.topic("draining.clicks", schema="k string, at timestamp", event_time="at")
    counts = hr.aggregate(
        clicks,
        by="k",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(seconds=5), timedelta(0)),
        hits=hr.count(),
    )
    app.view("clicks_counted", counts)
    with open_log(url) as log:
        Script(log).write(clicks, {"k": "a", "at": NOW})
        run(app, url, max_rows=100)
        (row,) = Results(log, app.name, ()).view("clicks_counted")
        assert row["_state"] == "open"
        hr.drain(app, log, spark=shuffling(2))
        (row,) = Results(log, app.name, ()).view("clicks_counted")
        assert row["_state"] == "final"
        Script(log).write(clicks, {"k": "a", "at": NOW})
        done = run(app, url, max_rows=100)
        assert done.law("clicks_counted").late == 1


@pytest.mark.slow
def test_joined_tables_are_the_oracles(url: str) -> None:
    with open_log(url) as log:
        if log.topic_ids([pipeline.TOPIC]):
            log.delete_topic(pipeline.TOPIC)  # the tables have a topic of that name, too
        script = Script(log)
        order_tables.create_topics(script)
        source = order_tables.Feed(3)
        found = []
        app, _ = order_tables.declare("tables-small")
        for _ in range(2):
            order_tables.feed(script, source, 10)
            log.cut(app.topics, rows=8)
            done = run(app, url, max_rows=8)
        found.append(order_tables.judge("tables-small", Results(log, app.name, done.steps)))
        app, _ = order_tables.declare("tables-large")
        done = run(app, url, max_rows=100_000)
        found.append(order_tables.judge("tables-large", Results(log, app.name, done.steps)))
    assert len(found[0]["dead"]) == len(found[1]["dead"]) > 0
