"""Pipelines that crash, change batches or lose their checkpoint: the same results."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.errors import LawBroken, PipelineError
from headrace.operators.window.state import PaneKeeper
from headrace.plan.accounting import terms
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.store.keeper import Passage
from headrace.store.location import app_folder
from headrace.testing import POINTS, Crash, ScriptedLog, crash_at, scripted_log
from tests.recovery.pipeline import (
    NOW,
    Feed,
    Which,
    create_topic,
    declare,
    everything,
    feed,
    judge,
)
from tests.spark import shuffling


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


class Case:
    """An application on a log that crashes or finishes, and must then match the oracle."""

    def __init__(self, log: ScriptedLog, name: str, which: Which = "small") -> None:
        self.log = log
        self.app, self.steps = declare(name, which)

    def crash(self, point: str, nth: int = 1, max_commits: int = 3) -> None:
        """Run until it crashes at a point."""
        crash_point = crash_at(point, nth)
        with pytest.raises(Crash):
            self.log.run(
                self.app, spark=shuffling(2), max_commits=max_commits, crash_point=crash_point
            )

    def finish(self, *, max_commits: int = 100_000, shuffles: int = 2) -> dict[str, Any]:
        """Run to the end, and return all results."""
        results = self.log.run(self.app, spark=shuffling(shuffles), max_commits=max_commits)
        judge(self.app, self.steps, results)
        return everything(self.app, results)


def test_a_crash_at_any_point_of_a_batch_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(1)
    case = Case(log, "crashed")
    for point in POINTS:
        feed(log, source, 4)
        case.crash(point)
    feed(log, source, 4)
    assert case.finish() == Case(log, "untouched").finish()


CUTS = [(1, 1), (100, 4), (100_000, 1)]


@pytest.mark.slow
def test_how_the_log_is_cut_into_batches_makes_no_difference(log: ScriptedLog) -> None:
    feed(log, Feed(2), 16)
    found = [
        Case(log, f"cut{number}").finish(max_commits=commits, shuffles=shuffles)
        for number, (commits, shuffles) in enumerate(CUTS)
    ]
    assert all(other == found[0] for other in found[1:])


@pytest.mark.slow
def test_how_windows_of_their_own_are_cut_and_crash_makes_no_difference(log: ScriptedLog) -> None:
    feed(log, Feed(8), 24)
    found = []
    for number, (commits, shuffles) in enumerate([(2, 2), (100_000, 1)]):
        case = Case(log, f"own{number}", "own")
        if commits == 2:
            case.crash("stored panes", 3, commits)
            case.crash("committed", 2, commits)
        found.append(case.finish(max_commits=commits, shuffles=shuffles))
    assert found[0] == found[1]


@pytest.mark.slow
def test_how_a_long_log_is_cut_and_where_it_crashes_makes_no_difference(log: ScriptedLog) -> None:
    feed(log, Feed(7), 110)
    found = []
    for number, (commits, shuffles, crashes) in enumerate(
        [
            (1, 1, ["sent"]),
            (1, 4, []),
            (100, 1, []),
            (100, 4, ["stored panes", "batch ended"]),
            (100_000, 1, ["before commit"]),
            (100_000, 4, []),
            (7, 4, list(POINTS)),
        ]
    ):
        case = Case(log, f"cut{number}", "grid")
        for point in crashes:
            case.crash(point, 1, commits)
        found.append(case.finish(max_commits=commits, shuffles=shuffles))
    assert all(other == found[0] for other in found[1:])


@pytest.mark.slow
def test_a_lost_checkpoint_is_made_up_for_by_reading_the_log_again(log: ScriptedLog) -> None:
    source = Feed(3)
    case = Case(log, "lost", "grid")
    feed(log, source, 10)
    case.finish(max_commits=4)
    feed(log, source, 10)
    shutil.rmtree(app_folder(log.log.url, "lost") / "checkpoints")
    assert case.finish(max_commits=7) == Case(log, "untouched", "grid").finish()


def test_results_that_are_behind_their_checkpoint_are_not_gone_on_with(log: ScriptedLog) -> None:
    feed(log, Feed(4), 10)
    Case(log, "behind").finish()
    folder = Path(log.log.url.removeprefix("file:")) / "views"
    for path in folder.glob("behind.db*"):
        path.unlink()
    app, _ = declare("behind", "small")
    with pytest.raises(PipelineError, match="checkpoint"):
        log.run(app, spark=shuffling(2))


def test_a_row_that_cannot_be_accounted_for_stops_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(5), 6)

    def losing(*given: Any) -> Law:
        return terms(*given) + Law(rows=1)

    app, _ = declare("broken", "small")
    with monkeypatch.context() as patch:
        patch.setattr("headrace.plan.accounting.terms", losing)
        with pytest.raises(LawBroken, match=r"cannot account for every row: .* ≠ "):
            log.run(app, spark=shuffling(2))
    Case(log, "broken").finish()


def test_rows_that_a_sink_forgets_stop_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(6), 6)
    honest = PaneKeeper.store

    def forgetful(
        self: PaneKeeper, db: apsw.Connection, batch: StepBatch[Any], passage: Passage
    ) -> Law:
        fewer = replace(batch.payload, rows=batch.payload.rows.slice(1))
        return honest(self, db, replace(batch, payload=fewer), passage)

    app, _ = declare("forgetful", "small")
    with monkeypatch.context() as patch:
        patch.setattr(PaneKeeper, "store", forgetful)
        with pytest.raises(LawBroken):
            log.run(app, spark=shuffling(2))
    assert not log.records("forgetful.sales"), "nothing of the batch was stored"
    Case(log, "forgetful").finish()
