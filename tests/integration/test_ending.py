"""`drain` closes every window of a stream that has ended, and loses nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import headrace as hr
from headrace.application.drain import close_windows, drain
from headrace.operators.window.windows import AnyWindow
from headrace.pipeline.stream import Source
from headrace.testing import Results, scripted_log
from tests.integration.test_cli_running import Cli
from tests.property.judging import check_law, check_published, check_view
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "k string, at timestamp"
LATENESS = hr.Lateness(10 * SECOND, 60 * SECOND)
DAY = timedelta(days=1)


def declare() -> tuple[hr.App, Source, dict[str, hr.Aggregation]]:
    app = hr.App("ends")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    windows: dict[str, AnyWindow] = {"days": hr.tumbling(DAY), "visits": hr.session(30 * SECOND)}
    steps = {
        name: hr.aggregate(
            source, by="k", window=window, lateness=LATENESS, emit="final", n=hr.count()
        )
        for name, window in windows.items()
    }
    for name, step in steps.items():
        app.view(name, step)
        app.publish(f"{name}.out", step)
    forever = hr.aggregate(
        source, by="k", window=hr.running(hr.FOREVER), lateness=LATENESS, n=hr.count()
    )
    app.view("forever", forever)
    return app, source, steps


def test_a_drained_application_has_nothing_open_but_what_is_kept_forever() -> None:
    with scripted_log(start=NOON) as log:
        app, source, steps = declare()
        times = [NOON - 50 * SECOND, NOON, NOON - 9 * SECOND]
        log.write(source, *({"k": "a", "at": at} for at in times))
        progress = drain(app, log.log, spark=shared())
        results = Results(log.log, app.name, tuple(progress))
        for name, step in steps.items():
            check_view(name, step, results)
            check_law(name, step, results)
            check_published(f"{name}.out", step, results)
        assert [row["n"] for row in results.view("days")] == [3]
        assert [row["n"] for row in results.view("visits")] == [1, 2]
        assert [row["_state"] for row in results.view("forever")] == ["open"]
        head = log.log.head()
        assert close_windows(app, log.log).keys() == {"events"}
        assert log.log.head() == head, "to do it again does nothing"


def test_the_command_asks_first(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(
        "import headrace as hr\napp = hr.App('asked')\n"
        "events = app.topic('events', schema='at timestamp', event_time='at')\n"
        "app.publish('copy', hr.select(events, 'at'))\n"
    )
    said = Cli(tmp_path).run("drain", f"{file}:app", code=2)
    assert "--yes" in said.stderr
    assert not (tmp_path / "log").exists()
