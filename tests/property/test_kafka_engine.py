"""On Kafka, for any rows and any batches, Spark's result is the oracle's.

The oracle judges a row by the rows before it in its partition.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.clock import micros, to_datetime
from headrace.operators.window.meaning import Meaning, meaning
from headrace.plan.crash_points import nothing
from headrace.servers.kafka.state import ClusterState
from headrace.testing import POINTS, Crash, Results, crash_at
from tests.kafka_runs import Runs, runs
from tests.property.judging import key_of, same_values, state_of
from tests.property.scripts import BEGIN, ERAS, LATENESS, SCHEMA, SECOND
from tests.spark import shared

pytestmark = pytest.mark.service

WINDOWS: dict[str, hr.Window | hr.Session] = {
    "tumbling": hr.tumbling(60 * SECOND),
    "uneven": hr.hopping(70 * SECOND, 30 * SECOND),
    "session": hr.session(30 * SECOND),
}

PAST = (ERAS[0], ERAS[1], ERAS[4], ERAS[2])
"""Eras without the year 9999, which is too far ahead of a broker's clock."""

AGGREGATES = {
    "rows": hr.count(),
    "total": hr.sum("n"),
    "mean": hr.average("n"),
    "high": hr.max("n"),
    "kinds": hr.distinct("n"),
}


@pytest.fixture(scope="module")
def servers(broker: ClusterState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_STATE", str(tmp_path_factory.mktemp("state")))
        yield f"127.0.0.1:{broker.nodes[0].port}"


def declare(kafka: Runs, partitions: int) -> tuple[hr.App, dict[str, hr.Aggregation]]:
    """A view for each window of one topic, and one of two topics merged."""
    app = hr.App(kafka.name("law"))
    left = app.topic(kafka.name("left"), schema=SCHEMA, event_time="at", partitions=partitions)
    right = app.topic(kafka.name("right"), schema=SCHEMA, event_time="at")
    made: dict[str, Any] = dict(AGGREGATES)
    if partitions == 1:  # else `first` at one moment depends on the partition, not the batch
        made |= {"opening": hr.first("n"), "closing": hr.last("n")}
    steps = {
        name: hr.aggregate(left, by="k", window=window, lateness=LATENESS, **made)
        for name, window in WINDOWS.items()
    }
    chosen = hr.derive(hr.filter(left, "n > 0 or n is null"), tag="upper(k)")
    both = hr.merge(
        hr.select(chosen, "k", "n", "tag"),
        hr.select(hr.explode(right, "tags", into="tag"), "k", "n", "tag"),
    )
    steps["both"] = hr.aggregate(
        both, by=["tag", "k"], window=hr.hopping(90 * SECOND, 30 * SECOND), lateness=LATENESS,
        rows=hr.count(), total=hr.sum("n"),
    )  # fmt: skip
    for name, step in steps.items():
        app.view(name, step)
        app.publish(kafka.name(f"{name}-late"), step.late)
    return app, steps


def check(
    kafka: Runs,
    app: hr.App,
    name: str,
    step: hr.Aggregation,
    results: Results,
) -> Meaning:
    """Check that a view, its late rows, its dead letters and the law are the oracle's."""
    events = kafka.events(step)
    expected = meaning(step, events)
    (progress,) = [p for p in results.steps if p.step == name]
    rows = {key_of(step, row): row for row in results.view(name)}
    assert set(rows) == set(expected.panes), name
    for place, pane in expected.panes.items():
        same_values(step, rows[place], pane)
        assert rows[place]["_revision"] == pane.revision
        assert rows[place]["_state"] == state_of(step, pane, progress.frontier)
    grace = micros(step.lateness.grace)
    late = Counter(
        (repr(row), to_datetime(step.window.start_of(end)), to_datetime(watermark),
         (watermark - grace - end) / 1_000_000)
        for _, row, end, watermark in expected.late
    )  # fmt: skip
    columns = step.input.columns
    assert late == Counter(
        (repr({c: r[c] for c in columns}), r["window_start"], r["watermark"], r["late_by"])
        for r in results.topic(kafka.name(f"{name}-late"))
    )
    letters = [r for r in results.topic(f"{app.name}.dead") if r["step"] == name]
    assert Counter(
        (r["topic"], r["partition"], r["offset"], r["commit_number"], r["reason"]) for r in letters
    ) == Counter(
        (e.topic.name, e.partition, e.offset, e.commit, reason) for e, reason in expected.dead
    )
    law = progress.law
    assert law.holds
    assert (law.rows, law.dead) == (len(events), len(expected.dead))
    assert (law.pairs, law.counted, law.late) == (
        expected.pairs, expected.counted, len(expected.late),
    )  # fmt: skip
    return expected


def disorderly(chance: random.Random, count: int, era: timedelta) -> list[dict[str, Any]]:
    """Rows whose times advance irregularly, with some from long before and some dead."""
    moment, rows = BEGIN + era, []
    for _ in range(count):
        moment += chance.choice([0, 0, 1, 10, 29, 30, 31, 60, 200]) * SECOND
        at: datetime | None = (
            moment - chance.choice([0, 0, 0, 1, 20, 79, 80, 81, 140, 400]) * SECOND
        )
        match chance.randrange(15):
            case 0:
                at = None
            case 1:
                at = BEGIN.replace(year=2100)
        rows.append(
            {
                "k": chance.choice(["a", "b", None]),
                "n": chance.choice([None, -3, 0, 1, 1, 2, 7]),
                "tags": chance.choice([None, [], ["x"], ["x", "y"], ["y", "y", "z"]]),
                "at": at,
            }
        )
    return rows


def explore(servers: str, seeds: Iterable[int]) -> Counter[str]:
    """Run it over rows of every seed, twice, each time with at most one crash."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        chance = random.Random(seed)
        with runs(servers, shared()) as kafka:
            app, steps = declare(kafka, chance.choice([1, 2]))
            for _ in range(2):
                for topic in app.topics.values():
                    rows = disorderly(chance, chance.randrange(40), PAST[seed % len(PAST)])
                    kafka.send(kafka.log.ensure_topic(topic).name, *rows)
                rows_of_batch = chance.choice([8, 20, 1_000])
                crash = crash_at(chance.choice(POINTS), chance.randint(1, 3))
                for crash_point in (crash, nothing):
                    with contextlib.suppress(Crash):
                        results = kafka.run(app, max_rows=rows_of_batch, crash_point=crash_point)
            for name, step in steps.items():
                found = check(kafka, app, name, step, results)
                seen["late"] += len(found.late)
                seen["dead"] += len(found.dead)
                seen["counted"] += found.counted
                seen["commits"] += len({event.commit for event in kafka.events(step)})
    assert min(seen[what] for what in ("late", "dead", "counted", "commits")) > 0, seen
    return seen


@pytest.mark.slow
def test_on_kafka_spark_agrees_with_the_oracle_of_its_batches(servers: str) -> None:
    explore(servers, [1, 2])


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_on_kafka_spark_agrees_with_the_oracle_of_many_batches(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = explore(servers, range(100, 140))
    with capsys.disabled():
        print(f"\n  {dict(seen)}")
