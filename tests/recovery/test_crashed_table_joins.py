"""Joined tables that crash, use other rounds, or are rebuilt: the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pyarrow as pa
import pytest

from headrace.application.rebuild.rebuild import Rebuild, rebuild
from headrace.errors import LawBroken
from headrace.operators.table_join.sides import Side
from headrace.plan.source_options import BatchLimits
from headrace.testing import POINTS, Crash, ScriptedLog, crash_at, scripted_log
from tests.recovery.order_tables import NOW, Feed, create_topics, declare, feed, judge
from tests.spark import shuffling

pytestmark = pytest.mark.slow


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topics(log)
        yield log


def finish(log: ScriptedLog, name: str, max_commits: int = 100_000) -> dict[str, object]:
    results = log.run(declare(name)[0], spark=shuffling(1), max_commits=max_commits)
    return judge(name, results)


def test_a_crash_at_any_point_of_a_round_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(1)
    app, _ = declare("crashed")
    for point in POINTS:
        feed(log, source, 4)
        with pytest.raises(Crash):
            log.run(app, spark=shuffling(1), max_commits=3, crash_point=crash_at(point))
    feed(log, source, 4)
    crashed = finish(log, "crashed")
    assert crashed == finish(log, "whole")
    assert crashed == finish(log, "pieces", max_commits=7)


def test_a_version_that_is_lost_on_the_way_stops_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(2), 6)
    honest = Side.take_in

    def losing(self: Side, db: apsw.Connection, versions: pa.Table) -> int:
        return honest(self, db, versions.slice(1))

    with monkeypatch.context() as patch:
        patch.setattr(Side, "take_in", losing)
        with pytest.raises(LawBroken):
            log.run(declare("losing")[0], spark=shuffling(1))
    finish(log, "losing")


def test_a_rebuild_that_crashes_is_gone_on_with_and_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(3)
    feed(log, source, 12)
    before = finish(log, "rebuilt", max_commits=4)
    app, _ = declare("rebuilt")
    for point in ("stored panes", "built", "before switch", "switched", "place cleared"):
        with (
            pytest.raises(Crash),
            Rebuild(
                app,
                "both",
                log.log,
                spark=shuffling(1),
                batch_limits=BatchLimits(max_commits=5),
                clock=log.clock,
                crash_point=crash_at(point),
            ) as building,
        ):
            building.build()
            building.switch()
    found = rebuild(app, "both", log.log, spark=shuffling(1), switch=True)
    assert found.diff.empty
    assert found.switched
    assert before == finish(log, "rebuilt")
    feed(log, source, 6)
    assert finish(log, "rebuilt") == finish(log, "whole")
