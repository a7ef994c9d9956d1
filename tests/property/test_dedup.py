"""For any log in any rounds, the rows that Spark keeps are the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.dedup.declare import Keep
from headrace.testing import scripted_log
from tests.property.distinct import check_distinct
from tests.property.scripts import NOW, SCHEMA, SECOND, Commit, next_era, quickly, scripts, write
from tests.spark import shuffling

KINDS: tuple[Keep, ...] = get_args(Keep)
REACHED = ("kept", "duplicates", "waiting", "late", "dead", "without key")
TICK = timedelta(microseconds=1)


def declare(
    partitions: int, ttl: int, delay: int, *, name: str = "dedup"
) -> tuple[hr.App, dict[str, hr.Deduplicated]]:
    """One topic read by two branches, and another: rows of one record can be duplicates too."""
    app = hr.App(name)
    events = app.topic("events", schema=SCHEMA, event_time="at", partitions=partitions)
    more = app.topic("more", schema=SCHEMA, event_time="at")
    tagged = hr.explode(hr.filter(events, "n is null or n > -3"), "tags", into="tag")
    columns = ("k", "n", "tag", "at")
    plain = hr.select(events, "k", "n", "at", tag="'x'")
    others = hr.select(more, "k", "n", "at", tag="'x'")
    every = hr.merge(hr.select(tagged, *columns), plain, others)
    steps: dict[str, hr.Deduplicated] = {}
    for keep in KINDS:
        step = steps[keep] = hr.deduplicate(
            every if keep == "first" else tagged,
            by=["k", "tag"],
            ttl=ttl * SECOND,
            keep=keep,
            delay=delay * SECOND,
        )
        app.publish(f"{name}.{keep}", step)
        app.publish(f"{name}.{keep}.late", step.late)
    return app, steps


def explore(examples: int, *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        scripts(),
        st.randoms(use_true_random=False),
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 2]),
        st.sampled_from([1, 30, 150]),
        st.sampled_from([0, 20, 100]),
    )
    def law(
        one: list[Commit],
        other: list[Commit],
        random: Random,
        commits: int,
        parts: int,
        ttl: int,
        delay: int,
    ) -> None:
        app, steps = declare(parts, ttl, delay)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            for topic in ("events", "more"):
                log.log.ensure_topic(app.topics[topic])
            waiting = [("events", commit) for commit in one], [("more", commit) for commit in other]
            while any(waiting):
                topic, commit = random.choice([side for side in waiting if side]).pop(0)
                write(log, app, [commit], topic, era)
                if random.random() < 0.15:
                    log.run(app, spark=shuffling(parts), max_commits=commits)
            results = log.run(app, spark=shuffling(parts), max_commits=commits)
            for keep, step in steps.items():
                late = f"dedup.{keep}.late"
                found = check_distinct(f"dedup.{keep}", step, results, late=late)
                seen["runs"] += 1
                seen["kept"] += len(found.rows)
                seen["duplicates"] += found.duplicates
                seen["waiting"] += found.waiting
                seen["late"] += len(found.late)
                seen["dead"] += len(found.dead)
                seen["without key"] += found.without_key

    law()
    print(dict(seen))
    return seen


def test_what_is_left_of_duplicates_is_the_oracles() -> None:
    explore(2, fresh=True)


@pytest.mark.slow
def test_what_is_left_of_duplicates_is_the_oracles_at_length() -> None:
    seen = explore(40)
    assert all(seen[kind] for kind in REACHED), seen


def row(key: str | None, at: Any, n: int = 0) -> dict[str, Any]:
    return {"k": key, "n": n, "at": at}


def test_the_time_to_live_is_exact_to_a_microsecond_in_both_directions() -> None:
    app = hr.App("ticks")
    events = app.topic("events", schema="k string, n int, at timestamp", event_time="at")
    steps = {
        keep: hr.deduplicate(events, by="k", ttl=10 * TICK, keep=keep, delay=100 * TICK)
        for keep in KINDS
    }
    for keep, step in steps.items():
        app.publish(keep, step)
        app.publish(f"{keep}.late", step.late)
    noon = NOW - timedelta(hours=1)
    with scripted_log(start=NOW) as log:
        log.write(events, *(row(f"{n}", noon, 1) for n in range(-12, 13)))
        log.write(events, *(row(f"{n}", noon + n * TICK, 2) for n in range(-12, 13)))
        log.write(events, row("x", noon + 300 * TICK))
        results = log.run(app, spark=shuffling(2), max_commits=1)
        for keep, step in steps.items():
            found = check_distinct(keep, step, results, late=f"{keep}.late")
            assert found.duplicates == 19, "those less than ten microseconds away"
        first, last = results.topic("first"), results.topic("last")
        assert [r["k"] for r in first if r["n"] == 2] == ["-12", "-11", "-10", "10", "11", "12"]
        assert {r["k"] for r in last if r["n"] == 1} == {"-12", "-11", "-10", "10", "11", "12"}


def test_a_row_between_two_groups_is_of_the_one_that_began_before_it() -> None:
    app = hr.App("between")
    events = app.topic("events", schema="k string, n int, at timestamp", event_time="at")
    step = hr.deduplicate(events, by="k", ttl=10 * SECOND, keep="last", delay=60 * SECOND)
    app.publish("last", step)
    app.publish("late", step.late)
    noon = NOW - timedelta(hours=1)
    with scripted_log(start=NOW) as log:
        log.write(events, row("a", noon, 1), row("a", noon + 10 * SECOND, 2))
        log.write(events, row("a", noon + 5 * SECOND, 3))
        log.write(events, row("b", noon + 90 * SECOND))
        results = log.run(app, spark=shuffling(2), max_commits=1)
        check_distinct("last", step, results, late="late")
        assert [found["n"] for found in results.topic("last")] == [3, 2]
