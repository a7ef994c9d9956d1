"""Published panes when an output's declaration changes between runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.pipeline.stream import Source
from headrace.store.location import views_folder
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        yield log


def declare(**choice: Any) -> tuple[hr.App, Source]:
    app = hr.App("shop")
    source = app.topic("orders", schema="item string, at timestamp", event_time="at")
    step = hr.aggregate(
        source,
        by="item",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(timedelta(0), 60 * SECOND),
        sold=hr.count(),
    )
    app.view("sales", step)
    app.publish("out", step, **choice)
    return app, source


def order(second: int, item: str = "pen") -> dict[str, Any]:
    return {"item": item, "at": NOON + second * SECOND}


def published(log: ScriptedLog, after: int = 0) -> list[tuple[str, str, int]]:
    rows = [record.value for record in log.records("out")][after:]
    return [(row["item"], row["pane"], row["sold"]) for row in rows]


def test_retractions_that_come_later_take_back_what_was_said_before(log: ScriptedLog) -> None:
    app, source = declare()
    log.write(source, order(0), order(1, "ink"))
    log.run(app, spark=shared())
    app, _ = declare(retractions=True)
    log.write(source, order(2), order(3, "cap"))
    log.run(app, spark=shared())
    assert published(log, 2) == [("pen", "retracted", 1), ("cap", "early", 1), ("pen", "early", 2)]
    # After a run without retractions the stored rows would be wrong, so they are removed.
    app, _ = declare()
    log.write(source, order(4))
    log.run(app, spark=shared())
    app, _ = declare(early="never", retractions=True)
    log.write(source, order(60))
    log.run(app, spark=shared())
    assert published(log, 6) == [
        ("cap", "retracted", 1),
        ("ink", "retracted", 1),
        ("pen", "retracted", 3),
        ("cap", "on time", 1),
        ("ink", "on time", 1),
        ("pen", "on time", 3),
    ]


def test_what_had_to_wait_is_told_by_a_batch_that_has_nothing_new_of_it(log: ScriptedLog) -> None:
    app, source = declare(early=30 * SECOND, retractions=True)
    log.write(source, order(0))
    log.write(source, order(1))
    log.run(app, spark=shared(), max_commits=1)
    log.pass_time(30 * SECOND)
    log.write(source, order(2, "ink"))
    log.run(app, spark=shared())
    assert published(log) == [
        ("pen", "early", 1),
        ("ink", "early", 1),
        ("pen", "retracted", 1),
        ("pen", "early", 2),
    ]


def test_what_was_said_is_forgotten_when_it_is_final(log: ScriptedLog) -> None:
    app, source = declare(early=2)
    log.write(source, order(0))
    log.write(source, order(60))
    log.run(app, spark=shared(), max_commits=1)
    remembered = 'SELECT item, sold FROM "_headrace_told out"'
    path = views_folder(log.log.url) / "shop.db"
    assert list(apsw.Connection(str(path)).execute(remembered)) == [("pen", 1)]
    log.write(source, order(120))
    log.run(app, spark=shared())
    assert list(apsw.Connection(str(path)).execute(remembered)) == [("pen", 1)]
    assert published(log) == [("pen", "on time", 1)] * 2
