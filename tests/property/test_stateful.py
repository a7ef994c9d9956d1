"""For any arrival order and any batches, state in Spark is the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.stateful.meaning import Folded
from headrace.schema.ddl import parse_schema
from headrace.testing import scripted_log
from tests.property import folds
from tests.property.folding import check_stateful
from tests.property.scripts import NOW, SCHEMA, SECOND, Commit, next_era, quickly, scripts, write
from tests.spark import shuffling

REACHED = ("rows", "late", "dead", "null keys", "gone on", "over", "states", "waiting")
COLUMNS = parse_schema("k string, n int, at timestamp")


def declare(partitions: int, orders: tuple[str, ...]) -> tuple[hr.App, dict[str, hr.Stateful]]:
    """An application that keeps totals in each of these orders, and visits by time."""
    app = hr.App("stateful")
    events = app.topic("events", schema=SCHEMA, event_time="at", partitions=partitions)
    rows = hr.select(hr.filter(events, "n is null or n > -3"), "k", "n", "at")
    steps = {}
    for order in orders:
        visits = order == "visits"
        steps[order] = hr.stateful(
            rows,
            folds.visits if visits else folds.totals,
            by="k",
            state=folds.VISITS_STATE if visits else folds.TOTALS_STATE,
            output=folds.VISITS if visits else folds.TOTALS,
            delay=20 * SECOND,
            ttl=100 * SECOND,
            order="arrival" if order == "arrival" else "time",
            buckets=3,
        )
        app.publish(order, steps[order])
        app.publish(f"{order}.late", steps[order].late)
    return app, steps


def tally(seen: Counter[str], found: Folded) -> None:
    """Count the kinds of rows that occurred."""
    seen["runs"] += 1
    seen["rows"] += len(found.rows)
    seen["late"] += len(found.late)
    seen["dead"] += len(found.dead)
    seen["states"] += len(found.states)
    seen["null keys"] += sum(row["k"] is None for row in found.rows)
    seen["gone on"] += sum(row["rows"] > 1 for row in found.rows)
    seen["over"] += sum("ended" in row for row in found.rows)
    seen["waiting"] += found.taken > sum(row["rows"] if "ended" in row else 1 for row in found.rows)


def explore(examples: int, orders: tuple[str, ...], *, fresh: bool = False) -> Counter[str]:
    """Keep state over random logs in all of these orders."""
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(scripts(), st.sampled_from([1, 3, 1_000]), st.sampled_from([1, 2]))
    def law(script: list[Commit], commits: int, parts: int) -> None:
        app, steps = declare(parts, orders)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            write(log, app, script, era=era)
            results = log.run(app, spark=shuffling(parts), max_commits=commits)
            for name, step in steps.items():
                tally(seen, check_stateful(name, step, results, COLUMNS, late=f"{name}.late"))

    law()
    print(dict(seen))
    return seen


def test_state_is_the_oracles() -> None:
    explore(2, ("time", "visits"), fresh=True)


@pytest.mark.slow
def test_state_is_the_oracles_at_length() -> None:
    seen = explore(50, ("time", "arrival", "visits"))
    assert all(seen[kind] for kind in REACHED), seen


@pytest.mark.slow
def test_rows_of_several_topics_come_in_the_order_of_time() -> None:
    app = hr.App("several")
    one = app.topic("one", schema="k string, n int, at timestamp", event_time="at")
    two = app.topic("two", schema="k string, ns array<int>, at timestamp", event_time="at")
    merged = hr.merge(one, hr.select(hr.explode(two, "ns", into="n"), "k", "n", "at"))
    step = hr.stateful(
        merged, folds.totals, by="k", state=folds.TOTALS_STATE, output=folds.TOTALS,
        delay=10 * SECOND, ttl=timedelta(hours=1), buckets=2,
    )  # fmt: skip
    app.publish("totals", step)
    app.publish("late", step.late)
    noon = NOW - timedelta(hours=1)
    with scripted_log(start=NOW) as log:
        log.write(one, {"k": "a", "n": 1, "at": noon}, {"k": "a", "n": 2, "at": noon + 5 * SECOND})
        log.write(two, {"k": "a", "ns": [10, 20, 30], "at": noon + 2 * SECOND})
        log.write(two, {"k": "b", "ns": [], "at": noon + 60 * SECOND})
        early = log.run(app, spark=shuffling(2), max_commits=1)
        assert early.topic("totals") == []  # the other topic may still have earlier rows
        log.write(one, {"k": "b", "n": 3, "at": noon + 70 * SECOND})
        results = log.run(app, spark=shuffling(2), max_commits=1)
        check_stateful("totals", step, results, COLUMNS, late="late")
        assert [row["n"] for row in results.topic("totals")] == [1, 10, 20, 30, 2]
