"""A pipeline over an idle topic closes its windows by itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import headrace as hr
from headrace.application.run import start
from headrace.clock import SystemClock, to_datetime
from headrace.log import open_log
from headrace.store import open_views
from tests.spark import shared
from tests.waiting import wait_until


def test_the_last_window_is_final_without_another_row(tmp_path: Path) -> None:
    app = hr.App("quiet")
    events = app.topic(
        "events", schema="k string, at timestamp", event_time="at", settings={"idle": "500ms"}
    )
    counts = hr.aggregate(
        events,
        by="k",
        window=hr.tumbling(timedelta(seconds=1)),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        emit="final",
        n=hr.count(),
    )
    app.view("counts", counts)
    with open_log(f"file:{tmp_path}") as log, start(app, log, spark=shared()) as running:
        with log.producer() as producer:
            producer.send("events", {"k": "a", "at": to_datetime(SystemClock().now())})
        with open_views(log.url, app="quiet") as views:
            wait_until(lambda: bool(views.rows("counts")))
        running.wait(0)
        assert all(commit.rows == 0 for commit in log.commits("events", 1, 1_000))
