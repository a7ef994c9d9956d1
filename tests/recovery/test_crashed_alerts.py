"""Alerts of pipelines that crash, change batches or lose their checkpoint: each once, the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apsw
import pytest

from headrace.errors import LawBroken
from headrace.operators.alerts.state import AlertKeeper, PublishedAlerts
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.store.keeper import Passage
from headrace.store.location import app_folder
from headrace.testing import POINTS, ScriptedLog, scripted_log
from tests.recovery.pipeline import NOW, Feed, create_topic, feed
from tests.recovery.test_crashed_pipelines import Case


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


def through(log: ScriptedLog, points: tuple[str, ...], commits: int) -> None:
    """Crash at points, and compare with undisturbed runs in other batches."""
    source, crashed = Feed(31), Case(log, "crashed", "alerts")
    for point in points:
        feed(log, source, commits)
        crashed.crash(point)
    feed(log, source, commits)
    found = crashed.finish(max_commits=2)
    assert found == Case(log, "whole", "alerts").finish(shuffles=1)
    assert found["alerts"]
    assert found["alerts.late"]


@pytest.mark.slow
def test_alerts_are_told_once_after_a_crash(log: ScriptedLog) -> None:
    through(log, ("stored panes", "committed"), 4)


@pytest.mark.slow
def test_alerts_are_told_once_after_a_crash_at_any_point(log: ScriptedLog) -> None:
    through(log, POINTS, 4)


@pytest.mark.slow
def test_alerts_go_on_where_a_checkpoint_is_lost(log: ScriptedLog) -> None:
    source = Feed(32)
    feed(log, source, 12)
    case = Case(log, "lost", "alerts")
    case.finish(max_commits=2)
    shutil.rmtree(app_folder(log.log.url, "lost") / "checkpoints")
    feed(log, source, 6)
    assert case.finish(max_commits=5) == Case(log, "kept", "alerts").finish()


@pytest.mark.slow
def test_alerts_that_are_not_remembered_are_noticed(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(33), 30)
    monkeypatch.setattr(PublishedAlerts, "add", lambda *_: True)
    with pytest.raises(AssertionError):
        Case(log, "forgetful", "alerts").finish(max_commits=2)


@pytest.mark.slow
def test_events_that_are_not_counted_stop_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(34), 6)
    honest = AlertKeeper.store

    def blind(
        self: AlertKeeper, db: apsw.Connection, batch: StepBatch[Any], passage: Passage
    ) -> Law:
        return honest(self, db, replace(batch, taken=batch.taken - 1), passage)

    monkeypatch.setattr(AlertKeeper, "store", blind)
    with pytest.raises(LawBroken):
        Case(log, "blind", "alerts").finish()
