"""Pipelines that crash, are cut into other batches, or lose their checkpoint: the same results."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.law import Law
from headrace.engine.query import Query
from headrace.errors import LawBroken, PipelineError
from headrace.testing import POINTS, Crash, Results, ScriptedLog, crash_at, scripted_log
from headrace.views.location import app_folder
from headrace.views.sink import ViewSink
from tests.recovery.pipeline import (
    NOW,
    Feed,
    create_topic,
    declare,
    everything,
    feed,
    judge,
)
from tests.spark import shuffling

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


def crash(log: ScriptedLog, name: str, point: str, nth: int = 1, max_commits: int = 3) -> None:
    """Run an application until it crashes at a point, or has caught up without reaching it."""
    app, _ = declare(name)
    with contextlib.suppress(PipelineError, Crash):
        log.run(app, spark=shuffling(2), max_commits=max_commits, reach=crash_at(point, nth))


def finish(
    log: ScriptedLog, name: str, *, max_commits: int = 100_000, shuffles: int = 2
) -> Results:
    app, steps = declare(name)
    results = log.run(app, spark=shuffling(shuffles), max_commits=max_commits)
    judge(app, steps, results)
    return results


def test_a_crash_at_any_point_of_a_batch_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(1)
    for point in POINTS:
        feed(log, source, 4)
        crash(log, "crashed", point)
    feed(log, source, 4)
    crashed = finish(log, "crashed")
    untouched = finish(log, "untouched")
    assert everything(declare("crashed")[0], crashed) == everything(
        declare("untouched")[0], untouched
    )


def test_how_the_log_is_cut_into_batches_makes_no_difference(log: ScriptedLog) -> None:
    feed(log, Feed(2), 24)
    found = []
    for number, (max_commits, shuffles) in enumerate(
        [(1, 1), (100, 4), (100_000, 1), (100_000, 4), (5, 2)]
    ):
        name = f"cut{number}"
        if max_commits == 5:
            crash(log, name, "stored panes", 2, max_commits)
            crash(log, name, "batch ended", 2, max_commits)
        results = finish(log, name, max_commits=max_commits, shuffles=shuffles)
        found.append(everything(declare(name)[0], results))
        dead = found[-1].pop("dead")
        assert sum(dead.values()) == sum(progress.law.dead for progress in results.steps)
    assert all(other == found[0] for other in found[1:])


def test_a_lost_checkpoint_is_made_up_for_by_reading_the_log_again(log: ScriptedLog) -> None:
    source = Feed(3)
    feed(log, source, 10)
    finish(log, "lost", max_commits=4)
    feed(log, source, 10)
    shutil.rmtree(app_folder(log.log.url, "lost") / "checkpoints")
    lost = finish(log, "lost", max_commits=7)
    untouched = finish(log, "untouched")
    assert everything(declare("lost")[0], lost) == everything(declare("untouched")[0], untouched)


def test_results_that_are_behind_their_checkpoint_are_not_gone_on_with(log: ScriptedLog) -> None:
    feed(log, Feed(4), 10)
    crash(log, "behind", "batch ended", 2)
    folder = Path(log.log.url.removeprefix("file:")) / "views"
    for path in folder.glob("behind.db*"):
        path.unlink()
    app, _ = declare("behind")
    with pytest.raises(PipelineError, match="checkpoint"):
        log.run(app, spark=shuffling(2))


def test_a_row_that_cannot_be_accounted_for_stops_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(5), 6)
    honest = Query._law

    def losing(self: Query, *terms: object) -> Law:
        return honest(self, *terms) + Law(rows=1, pairs=1)  # type: ignore[arg-type]

    app, _ = declare("broken")
    with monkeypatch.context() as patch:
        patch.setattr(Query, "_law", losing)
        with pytest.raises(LawBroken, match=r"cannot account for every row: .* ≠ "):
            log.run(app, spark=shuffling(2))
    finish(log, "broken")


def test_rows_that_a_sink_forgets_stop_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(6), 6)
    honest = ViewSink._store_rows

    def forgetful(self: ViewSink, db: object, portion: object) -> int:
        rows = portion.rows  # type: ignore[attr-defined]
        return honest(self, db, replace(portion, rows=rows.slice(1)))  # type: ignore[arg-type, type-var]

    app, _ = declare("forgetful")
    with monkeypatch.context() as patch:
        patch.setattr(ViewSink, "_store_rows", forgetful)
        with pytest.raises(LawBroken):
            log.run(app, spark=shuffling(2))
    assert not log.records("forgetful.sales"), "nothing of the batch was stored"
    finish(log, "forgetful")
