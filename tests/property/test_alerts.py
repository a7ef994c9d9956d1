"""For any log and any batches, the alerts of Spark are the oracle's."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import scripted_log
from tests.property.flagging import JUDGES, RULES, check_alerts
from tests.property.scripts import NOW, SCHEMA, SECOND, Commit, next_era, quickly, scripts, write
from tests.spark import shuffling

REACHED = ("alerts", "again", "cut", "late", "dead", *RULES)

SHAPES = [
    (within, delay, limit)
    for limit in (4, 2, 1_000)
    for delay in (100, 20, 0)
    for within in (150, 30, 1)
]
"""Look-back of rules and delay in seconds, and the limit of events per key.

Each is used in turn, because Hypothesis would repeat some of them and skip others.
"""


def declare(partitions: int, within: int, delay: int, limit: int) -> tuple[hr.App, hr.Alerts]:
    """Declare alerts over ids and keys that repeat, and are null at times."""
    app = hr.App("flags")
    events = app.topic("events", schema=SCHEMA, event_time="at", partitions=partitions)
    named = hr.derive(hr.filter(events, "n is null or n > -3"), id="n * 3")
    step = hr.alerts(
        hr.select(named, "id", "k", "n", "at"),
        by="k",
        event="id",
        within=within * SECOND,
        delay=delay * SECOND,
        limit=limit,
        rules=RULES,
    )
    app.publish("flags.alerts", step)
    app.publish("flags.late", step.late)
    return app, step


def explore(examples: int, *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        st.randoms(use_true_random=False),
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 2]),
    )
    def law(script: list[Commit], random: Random, commits: int, parts: int) -> None:
        within, delay, limit = SHAPES[seen["runs"] % len(SHAPES)]
        app, step = declare(parts, within, delay, limit)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            log.log.ensure_topic(app.topics["events"])
            for commit in script:
                write(log, app, [commit], era=era)
                if random.random() < 0.15:
                    log.run(app, spark=shuffling(parts), max_commits=commits)
            results = log.run(app, spark=shuffling(parts), max_commits=commits)
            found = check_alerts("flags.alerts", step, JUDGES, results, late="flags.late")
            seen["runs"] += 1
            seen["alerts"] += len(found.alerts)
            seen["again"] += found.again
            seen["cut"] += sum(alert["cut"] for alert in found.alerts)
            seen["late"] += len(found.late)
            seen["dead"] += len(found.dead)
            for alert in found.alerts:
                seen[alert["rule"]] += 1

    law()
    print(dict(seen))
    return seen


def test_alerts_are_the_oracles() -> None:
    explore(3, fresh=True)


@pytest.mark.slow
def test_alerts_are_the_oracles_at_length() -> None:
    seen = explore(2 * len(SHAPES))
    assert all(seen[kind] for kind in REACHED), seen
