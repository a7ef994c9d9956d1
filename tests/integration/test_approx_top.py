"""The most frequent values of a window, estimated: every count is within its error bound."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import headrace as hr
from headrace.testing import scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_estimates_are_within_their_error_and_miss_nothing_that_is_commoner() -> None:
    app = hr.App("common")
    source = app.topic("visits", schema="page string, at timestamp", event_time="at")
    counts = hr.aggregate(
        source,
        by=[],
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        few=hr.approx_top("page", 12, tracked=12),
        all=hr.approx_top("page", 3, tracked=600),
    )
    app.view("common", counts)
    app.publish("out", counts)
    chance = random.Random(1)
    pages = [f"/{min(int(chance.paretovariate(0.7)), 500)}" for _ in range(2_000)]
    with scripted_log(start=NOON) as log:
        for first in range(0, len(pages), 500):
            log.write(source, *({"page": p, "at": NOON} for p in pages[first : first + 500]))
        results = log.run(app, spark=shared(), max_commits=1)
        (row,) = results.view("common")
        last = results.topic("out")[-1]
    true = Counter(pages)
    (error,) = {one["error"] for one in json.loads(row["few"])}
    assert error == int(3.5 / 16 * 2_000)
    estimates = {one["item"]: one["count"] for one in json.loads(row["few"])}
    assert all(true[item] <= count <= true[item] + error for item, count in estimates.items())
    assert {item for item, count in true.items() if count > error} <= set(estimates)
    exact = sorted(true.items(), key=lambda one: (-one[1], one[0]))[:3]
    assert [(one["item"], one["count"]) for one in json.loads(row["all"])] == exact
    assert [(one["item"], one["count"]) for one in last["all"]] == exact
