"""Chains that crash or are cut into other batches: each result is passed on exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.operators.window.declare import Aggregation
from headrace.plan.steps import steps_of
from headrace.testing import POINTS, Crash, ScriptedLog, crash_at, scripted_log
from tests.property.judging import check_dead, check_late, check_law, check_published, check_view
from tests.recovery.pipeline import LATENESS, NOW, SCHEMA, SECOND, TOPIC, Feed, create_topic, feed
from tests.spark import shuffling

MINUTES = timedelta(minutes=5)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


def declare(name: str) -> hr.App:
    """A window over a window, and the latest gift of each shop."""
    app = hr.App(name)
    orders = app.topic(TOPIC, schema=SCHEMA, key="shop", event_time="at", partitions=2)
    sales = hr.aggregate(
        hr.filter(orders, "item != 'gift'"), by="shop", window=hr.tumbling(60 * SECOND),
        lateness=LATENESS, orders=hr.count(), revenue=hr.sum("price"),
    )  # fmt: skip
    busy = hr.aggregate(
        hr.filter(sales, "orders > 1"), by="shop", window=hr.tumbling(MINUTES),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        minutes=hr.count(), orders=hr.sum("orders"), revenue=hr.sum("revenue"),
    )  # fmt: skip
    app.view("busy", busy)
    app.publish(f"{name}.late", sales.late)
    app.view("gifts", hr.filter(orders, "item = 'gift'"), key="shop")
    return app


def finish(log: ScriptedLog, name: str, max_commits: int = 100_000) -> dict[str, Any]:
    """Run to the end, compare each step with the oracle, and return all results."""
    app = declare(name)
    results = log.run(app, spark=shuffling(2), max_commits=max_commits)
    steps = {step.name: step.computed for step in steps_of(app)}
    inner, last = steps["busy.part"], steps["busy"]
    assert isinstance(inner, Aggregation)
    assert isinstance(last, Aggregation)
    # The meaning of a chain is that of its second step over the output of the first.
    check_published(f"{name}.busy.part", inner, results)
    check_late(f"{name}.late", inner, results)
    check_view("busy", last, results)
    for step, made in (("busy.part", inner), ("busy", last)):
        check_law(step, made, results)
        check_dead(name, step, made, results)
    assert all(step.lag == 0 and step.law.holds for step in results.steps)
    assert results.law("busy.part").late
    assert not results.law("busy").late
    passed_on = [record.value for record in log.records(f"{name}.busy.part")]
    return {
        "busy": [{**row, "_revision": None} for row in results.view("busy")],
        "gifts": [{**row, "_revision": None} for row in results.view("gifts")],
        "passed on": sorted(repr(row) for row in passed_on),
    }


@pytest.mark.slow
def test_a_crash_between_the_steps_of_a_chain_passes_nothing_on_twice(log: ScriptedLog) -> None:
    source = Feed(21)
    feed(log, source, 40)
    for point, nth in (("committed", 1), ("sent", 2)):
        with pytest.raises(Crash):
            log.run(declare("crashed"), spark=shuffling(2), crash_point=crash_at(point, nth))
    feed(log, source, 20)
    crashed = finish(log, "crashed")
    assert crashed["busy"]
    assert crashed == finish(log, "untouched")


@pytest.mark.slow
def test_a_crash_at_any_point_of_a_chain_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(22)
    for nth in (1, 2):
        for point in POINTS:
            feed(log, source, 6)
            with pytest.raises(Crash):
                crash = crash_at(point, nth)
                log.run(declare("crashed"), spark=shuffling(2), max_commits=4, crash_point=crash)
    feed(log, source, 10)
    crashed = finish(log, "crashed")
    assert crashed == finish(log, "untouched")
    assert crashed == finish(log, "cut", max_commits=3)
