"""Python state in pipelines that crash, change batches or lose their checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from headrace.errors import LawBroken
from headrace.operators.stateful.outcome import Outcome
from headrace.store.location import app_folder
from headrace.testing import POINTS, ScriptedLog, scripted_log
from tests.recovery.pipeline import NOW, Feed, create_topic, feed
from tests.recovery.test_crashed_pipelines import Case

pytestmark = pytest.mark.slow


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


def test_state_that_crashed_at_every_point_is_as_if_it_had_not(log: ScriptedLog) -> None:
    source = Feed(21)
    crashed = Case(log, "crashed", "state")
    for point in POINTS:
        feed(log, source, 4)
        crashed.crash(point)
    feed(log, source, 3)
    assert crashed.finish(max_commits=3) == Case(log, "whole", "state").finish(shuffles=1)


def test_state_is_computed_again_where_a_checkpoint_is_lost(log: ScriptedLog) -> None:
    source = Feed(22)
    feed(log, source, 12)
    case = Case(log, "lost", "state")
    case.finish(max_commits=2)
    shutil.rmtree(app_folder(log.log.url, "lost") / "checkpoints")
    feed(log, source, 6)
    assert case.finish(max_commits=5) == Case(log, "kept", "state").finish()


def test_a_bucket_that_miscounts_is_noticed(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(23), 6)
    made = Outcome.__init__

    def lose_one(self: Outcome, *args: object, **more: object) -> None:
        made(self, *args, **more)  # type: ignore[arg-type]
        object.__setattr__(self, "taken", self.taken - 1)

    monkeypatch.setattr(Outcome, "__init__", lose_one)
    with pytest.raises(LawBroken):
        Case(log, "miscounted", "state").finish()
