"""The panes that a sink publishes are the oracle's, for any log, any batches and any options."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.window.emission.last_published import LastPublished
from headrace.operators.window.windows import AnyWindow
from headrace.plan.steps import Step, steps_of
from headrace.store import open_views
from headrace.testing import POINTS, Crash, Results, crash_at, scripted_log
from tests.property.judging import check_changelog, check_published, check_said, check_view
from tests.property.scripts import (
    CHOICES,
    ERAS,
    LATENESS,
    NOW,
    SCHEMA,
    SECOND,
    Commit,
    quickly,
    scripts,
    write,
)
from tests.property.sinking import sink_all

TYPES = {"k": pa.string(), "rows": pa.int64(), "total": pa.int64(), "high": pa.int32()}
WINDOWS: dict[str, AnyWindow] = {
    "tumbling": hr.tumbling(60 * SECOND),
    "hopping": hr.hopping(90 * SECOND, 30 * SECOND),
    "cumulative": hr.cumulative(90 * SECOND, step=30 * SECOND),
    "sliding": hr.sliding(50 * SECOND),
    "session": hr.session(30 * SECOND),
}
CUTS = st.sampled_from([1, 2, 3, 5, 1_000])


def declare(window: str, emit: Any = "updates") -> tuple[hr.App, hr.Aggregation, Step]:
    app = hr.App("told")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    made = {"rows": hr.count(), "total": hr.sum("n"), "high": hr.max("n")}
    counts = hr.aggregate(
        source, by="k", window=WINDOWS[window], lateness=LATENESS, emit=emit, **made
    )
    app.view("counts", counts)
    app.publish("out", counts)
    for option, choice in CHOICES.items() if emit == "updates" else ():
        if window != "sliding" or option != "rows":
            app.publish(option, counts, **choice)
    (step,) = steps_of(app)
    return app, counts, step


def judge(app: hr.App, counts: hr.Aggregation, results: Results) -> None:
    check_view("counts", counts, results)
    check_published("out", counts, results)
    check_changelog("told.counts.changes", counts, results, "counts")
    if counts.emit == "updates":
        for output in app.outputs.values():
            check_said(output, "counts", results)


@pytest.mark.parametrize("window", WINDOWS)
@quickly(12)
@given(scripts(), st.sampled_from(ERAS), CUTS, CUTS, st.sampled_from(["updates", "final"]))
def test_every_output_is_told_what_it_has_chosen(
    window: str, script: list[Commit], era: timedelta, cut: int, then: int, emit: str
) -> None:
    app, counts, step = declare(window, emit)
    with scripted_log(start=NOW + era) as log:
        write(log, app, script[:6], era=era)
        sink_all(log.log, step, TYPES, max_commits=cut)
        write(log, app, script[6:], era=era)
        judge(app, counts, sink_all(log.log, step, TYPES, max_commits=then))


@pytest.mark.parametrize("window", ["tumbling", "session"])
@quickly(12)
@given(scripts(), st.sampled_from(POINTS[3:9]), st.integers(1, 8))
def test_a_crash_while_panes_are_stored_or_sent_changes_nothing_of_what_is_said(
    window: str, script: list[Commit], point: str, nth: int
) -> None:
    app, counts, step = declare(window)
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        with contextlib.suppress(Crash):
            sink_all(log.log, step, TYPES, max_commits=2, crash_point=crash_at(point, nth))
        judge(app, counts, sink_all(log.log, step, TYPES, max_commits=2))


def _forgetful(self: LastPublished, db: object, panes: pa.Table) -> pa.Table:
    return self.schema.empty_table().take(pa.nulls(panes.num_rows, pa.int64()))


@pytest.mark.parametrize(
    ("broken", "instead"),
    [
        ("find", _forgetful),
        ("wait", lambda *_: None),
        ("tell", lambda *_: None),
        ("remove", lambda self, *_: self.schema.empty_table()),
    ],
)
def test_what_is_not_remembered_is_noticed(
    broken: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, counts, step = declare("session")
    moments = (0, 2, 40, 41, 60, 20, 62, 63, 64, 65, 66, 200)
    script: list[Commit] = [[{"k": "a", "n": 1, "at": NOW + s * SECOND}] for s in moments]
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        judge(app, counts, sink_all(log.log, step, TYPES, max_commits=1))
    monkeypatch.setattr(LastPublished, broken, instead)
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        with pytest.raises(AssertionError):
            judge(app, counts, sink_all(log.log, step, TYPES, max_commits=1))


def test_what_was_sent_leaves_the_outbox_with_the_next_batch() -> None:
    app, _, step = declare("tumbling")
    with scripted_log(start=NOW) as log:
        for number in range(20):
            write(log, app, [[{"k": "a", "n": 1, "at": NOW + number * SECOND}]])
            sink_all(log.log, step, TYPES, max_commits=1)
        with open_views(log.log.url, app=app.name) as views:
            left = views.query('SELECT DISTINCT sequence FROM "told"._headrace_outbox').rows
        topics = [topic.name for topic in log.log.topics() if topic.name != "events"]
        assert len(left) <= len(topics)
        sent = sum(len({r.commit for r in log.records(topic)}) for topic in topics)
        assert sent > 3 * len(topics)


def test_sessions_that_nothing_can_join_are_not_held() -> None:
    app, _, step = declare("session")
    with scripted_log(start=NOW) as log:
        for number in range(20):
            write(log, app, [[{"k": "a", "n": 1, "at": NOW + (number - 20) * 600 * SECOND}]])
        sink_all(log.log, step, TYPES, max_commits=1)
        with open_views(log.log.url, app=app.name) as views:
            assert len(views.query('SELECT * FROM "told"._headrace_open_counts').rows) == 1
            assert len(views.query("SELECT * FROM counts").rows) == 20


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_a_session_is_not_final_while_an_event_in_time_makes_it_longer(emit: str) -> None:
    app, counts, step = declare("session", emit)
    begin = NOW - 600 * SECOND
    row, last = ({"k": "a", "n": 1, "at": begin + s * SECOND} for s in (0, 29))
    script: list[Commit] = [[row], begin + 138 * SECOND, [last], begin + 400 * SECOND]
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        results = sink_all(log.log, step, TYPES, max_commits=1)
        judge(app, counts, results)
        assert results.law("counts").late == 0
        assert [pane["rows"] for pane in results.view("counts")] == [2]
