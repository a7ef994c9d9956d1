"""Rankings that crash or use other batches, on Spark: the same rows in every rank."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Crash, ScriptedLog, crash_at, scripted_log
from tests.property.ranking import check_fired, check_ranking
from tests.recovery.pipeline import LATENESS, NOW, SCHEMA, SECOND, TOPIC, Feed, create_topic, feed
from tests.spark import shuffling

pytestmark = pytest.mark.slow


def declare(name: str) -> tuple[hr.App, dict[str, hr.Top]]:
    """The best shops of each minute, and the items that sell best now."""
    app = hr.App(name)
    orders = app.topic(TOPIC, schema=SCHEMA, key="shop", event_time="at", partitions=2)
    minutes, now = hr.tumbling(60 * SECOND), hr.running(30 * SECOND)
    boards = {}
    for board, by, within, window in (
        ("shops", ["item", "shop"], ["item"], minutes),
        ("items", ["item"], (), now),
    ):
        sales = hr.aggregate(
            orders,
            by=by,
            window=window,
            lateness=LATENESS,
            revenue=hr.sum("price"),
        )
        boards[board] = hr.top(sales, 2, by="revenue", within=within)
        app.view(board, boards[board])
        app.publish(f"{name}.{board}.pairs", boards[board], retractions=True)
        app.publish(f"{name}.{board}.calm.pairs", boards[board], early="never", retractions=True)
    return app, boards


def finish(log: ScriptedLog, name: str, *, max_commits: int) -> dict[str, Any]:
    app, boards = declare(name)
    results = log.run(app, spark=shuffling(2), max_commits=max_commits)
    for board, top in boards.items():
        check_ranking(top, board, results, f"{name}.{board}.pairs")
        check_fired(top, results, f"{name}.{board}.calm.pairs")
    return {board: results.view(board) for board in boards}


def test_how_rankings_are_cut_and_crash_makes_no_difference() -> None:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        feed(log, Feed(9), 24)
        for point, nth in (("stored panes", 3), ("before sending", 2), ("committed", 2)):
            app, _ = declare("crashed")
            with pytest.raises(Crash):
                log.run(app, spark=shuffling(2), max_commits=2, crash_point=crash_at(point, nth))
        crashed = finish(log, "crashed", max_commits=2)
        assert crashed == finish(log, "whole", max_commits=100_000)
        assert all(crashed.values())
