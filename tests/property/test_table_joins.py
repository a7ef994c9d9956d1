"""For any interleaving of tables, SQLite's join of their changes is the oracle's."""

from __future__ import annotations

import contextlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.crash_points import nothing
from headrace.plan.steps import steps_of
from headrace.testing import Crash, crash_at, scripted_log
from tests.property.scripts import NOW, next_era, quickly
from tests.property.tabled import KINDS, Change, declare, scripts, sink_tables, write
from tests.property.tabling import check
from tests.spark import shuffling

LOSING = ("inner", "pairs", "chain")
"""Kinds without unmatched rows."""

SINK_POINTS = ("stored panes", "stored outputs", "before commit", "committed", "sent")
CUTS = (1, 2, 5, 1_000)
REACHED = ("rows", "alone", "deleted", "late changes", "dead", "changes", "deletions")


def explore(examples: int, kinds: tuple[str, ...] = KINDS, *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        st.randoms(use_true_random=False),
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 2]),
        st.sampled_from(kinds),
        st.sampled_from(["id", "id", "id", None]),
    )
    def law(
        script: list[Change], random: Random, commits: int, parts: int, kind: str, key: str | None
    ) -> None:
        app, step = declare(kind, parts, key)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            for topic in app.topics.values():
                log.log.ensure_topic(topic)
            for change in script:
                write(log, app, change, era)
                if random.random() < 0.15:
                    log.run(app, spark=shuffling(1), max_commits=commits)
            results = log.run(app, spark=shuffling(1), max_commits=commits)
            seen.update(check(step, results))
            seen["runs"] += 1
            seen[kind] += 1

    law()
    print(dict(seen))
    return seen


def test_joined_tables_are_the_oracles() -> None:
    explore(4, fresh=True)


def explore_sinks(examples: int, kind: str) -> Counter[str]:
    """Join random logs in any batches and with crashes, without Spark."""
    seen: Counter[str] = Counter()

    @quickly(examples)
    @given(
        scripts(),
        st.randoms(use_true_random=False),
        st.lists(st.sampled_from(SINK_POINTS), max_size=3),
    )
    def law(script: list[Change], random: Random, crashes: list[str]) -> None:
        app, step = declare(kind)
        (made,) = steps_of(app)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            for topic in app.topics.values():
                log.log.ensure_topic(topic)
            for change in script:
                write(log, app, change, era)
                if random.random() < 0.3:
                    crash = crash_at(crashes.pop()) if crashes else nothing
                    with contextlib.suppress(Crash):
                        sink_tables(
                            log.log, made, max_commits=random.choice(CUTS), crash_point=crash
                        )
            results = sink_tables(log.log, made, max_commits=random.choice(CUTS))
            seen.update(check(step, results, letters=False))

    law()
    return seen


@pytest.mark.parametrize("kind", ["inner", "full", "pairs", "chain"])
def test_any_cut_of_any_tables_with_crashes_is_the_oracles(kind: str) -> None:
    assert explore_sinks(8, kind)["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_of_any_tables_with_crashes_is_the_oracles_at_length(kind: str) -> None:
    seen = explore_sinks(150, kind)
    needed = set(REACHED) - {"dead"}
    assert all(seen[what] for what in needed - ({"alone"} if kind in LOSING else set())), seen


@pytest.mark.slow
def test_joined_tables_are_the_oracles_at_length() -> None:
    seen: Counter[str] = Counter()
    for kind in KINDS:
        seen += explore(8, (kind,))
    assert all(seen[what] for what in (*REACHED, *KINDS)), seen
