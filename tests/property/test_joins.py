"""For any interleaving of two streams and any batches, Spark's join is the oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import micros
from headrace.operators.stream_join.declare import How
from headrace.operators.stream_join.meaning import Joined
from headrace.testing import scripted_log
from tests.property.joining import check_join
from tests.property.scripts import NOW, SCHEMA, SECOND, Commit, next_era, quickly, scripts, write
from tests.seed import SEED
from tests.spark import shuffling

REACHED = ("pairs", "unmatched", "late left", "late right", "dead", "null keys", "same moment")
KINDS = get_args(How)


def declare(kinds: Sequence[How], partitions: int) -> tuple[hr.App, dict[How, hr.Join]]:
    """An application that joins two topics in each of these ways."""
    app = hr.App("joins")
    shown = app.topic("left", schema=SCHEMA, event_time="at", partitions=partitions)
    clicked = app.topic("right", schema=SCHEMA, event_time="at")
    left = hr.select(shown, "k", "n", "at")
    right = hr.select(hr.filter(clicked, "n is null or n > -3"), "n", "tags", "at", id="k")
    joins = {}
    for how in kinds:
        step = joins[how] = hr.join(
            left,
            right,
            on={"k": "id"},
            before=5 * SECOND,
            after=150 * SECOND,
            how=how,
            delay=20 * SECOND,
            prefix="r_",
        )
        app.publish(f"{how}.out", step)
        app.publish(f"{how}.late", step.late)
    return app, joins


def tally(seen: Counter[str], found: Joined) -> None:
    """Count the kinds of rows that occurred."""
    seen["runs"] += 1
    seen["pairs"] += len(found.pairs)
    seen["unmatched"] += len(found.unmatched)
    seen["dead"] += len(found.dead)
    seen["null keys"] += sum(row["k"] is None for row in found.unmatched)
    for side in ("left", "right"):
        seen[f"late {side}"] += sum(late == side for late, _ in found.late)
    seen["same moment"] += sum(row["at"] == row.get("r_at") for row in found.pairs)


def explore(examples: int, kinds: Sequence[How], *, fresh: bool = False) -> Counter[str]:
    """Join random logs in all of these ways."""
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        scripts(),
        st.randoms(use_true_random=False),
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 2]),
    )
    def law(
        one: list[Commit], other: list[Commit], random: Random, commits: int, parts: int
    ) -> None:
        app, joins = declare(kinds, parts)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            for topic in ("left", "right"):
                log.log.ensure_topic(app.topics[topic])
            waiting = [("left", commit) for commit in one], [("right", commit) for commit in other]
            while any(waiting):
                topic, commit = random.choice([side for side in waiting if side]).pop(0)
                write(log, app, [commit], topic, era)
            results = log.run(app, spark=shuffling(parts), max_commits=commits)
            for how, step in joins.items():
                tally(seen, check_join(f"{how}.out", step, results, late=f"{how}.late"))

    law()
    print(dict(seen))
    return seen


def test_a_join_is_the_oracles() -> None:
    explore(3, [KINDS[(SEED or 0) % len(KINDS)]], fresh=True)


@pytest.mark.slow
def test_a_join_is_the_oracles_at_length() -> None:
    seen = explore(60, KINDS)
    assert all(seen[kind] for kind in REACHED), seen


def test_bounds_are_exact_to_a_microsecond() -> None:
    tick = timedelta(microseconds=1)
    app = hr.App("ticks")
    left = app.topic("l", schema="k string, at timestamp", event_time="at")
    right = app.topic("r", schema="k string, at timestamp", event_time="at")
    pairs = hr.join(
        left, right, on="k", before=3 * tick, after=7 * tick, delay=tick, prefix="r_", how="full"
    )
    app.publish("pairs", pairs)
    app.publish("late", pairs.late)
    with scripted_log(start=NOW) as log:
        noon = NOW - timedelta(hours=1)
        log.write(left, *({"k": f"{n}", "at": noon} for n in range(-5, 10)))
        log.write(right, *({"k": f"{n}", "at": noon + n * tick} for n in range(-5, 10)))
        log.write(left, {"k": "x", "at": noon + 20 * tick})
        log.write(right, {"k": "y", "at": noon + 20 * tick})
        results = log.run(app, spark=shuffling(2), max_commits=1)
        found = check_join("pairs", pairs, results, late="late")
    assert len(found.pairs) == micros(10 * tick) + 1
    assert len(found.unmatched) == 8
