"""Duplicates in pipelines that crash or use other rounds: the same rows are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.errors import LawBroken
from headrace.operators.dedup.state import GroupKeeper, GroupTable
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.store import open_views
from headrace.store.keeper import Passage
from headrace.testing import POINTS, Crash, ScriptedLog, crash_at, scripted_log
from tests.property.distinct import check_distinct
from tests.recovery.pipeline import NOW, Feed, create_topic, declare, everything, feed, judge
from tests.spark import shuffling

pytestmark = pytest.mark.slow


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


def finish(log: ScriptedLog, name: str, max_commits: int = 100_000) -> dict[str, Any]:
    """Run to the end, and return all results."""
    app, steps = declare(name, "distinct")
    results = log.run(app, spark=shuffling(2), max_commits=max_commits)
    judge(app, steps, results)
    return everything(app, results)


def test_a_crash_at_any_point_of_a_round_changes_nothing(log: ScriptedLog) -> None:
    source = Feed(11)
    app, _ = declare("crashed", "distinct")
    for point in POINTS:
        feed(log, source, 4)
        with pytest.raises(Crash):
            log.run(app, spark=shuffling(2), max_commits=3, crash_point=crash_at(point))
    feed(log, source, 4)
    crashed = finish(log, "crashed")
    assert crashed == finish(log, "untouched")
    assert crashed == finish(log, "cut", max_commits=1)
    assert all(crashed[topic] for topic in ("first", "last", "first.late", "last.late"))


def test_rows_that_are_lost_on_the_way_stop_the_pipeline(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(12), 6)
    honest = GroupKeeper.store

    def forgetful(
        self: GroupKeeper, db: apsw.Connection, batch: StepBatch[Any], passage: Passage
    ) -> Law:
        fewer = replace(batch.payload, rows=batch.payload.rows.slice(1))
        return honest(self, db, replace(batch, payload=fewer), passage)

    app, _ = declare("forgetful", "distinct")
    with monkeypatch.context() as patch:
        patch.setattr(GroupKeeper, "store", forgetful)
        with pytest.raises(LawBroken, match=r"duplicates"):
            log.run(app, spark=shuffling(2))
    assert not log.records("forgetful.first"), "nothing of the round was stored"
    finish(log, "forgetful")


def test_groups_that_are_not_looked_up_are_noticed(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(log, Feed(13), 12)
    honest = GroupTable.of
    monkeypatch.setattr(GroupTable, "of", lambda self, db, keys: honest(self, db, keys).slice(0, 0))
    with pytest.raises((AssertionError, apsw.ConstraintError, LawBroken)):
        finish(log, "blind", max_commits=1)


COMMITS, KEYS, STEP = 60, 200, timedelta(seconds=10)


def test_what_is_held_is_bounded_however_many_keys_come_and_go() -> None:
    app = hr.App("long")
    events = app.topic("events", schema="k string, at timestamp", event_time="at")
    steps = {
        keep: hr.deduplicate(events, by="k", ttl=3 * STEP, keep=keep, delay=STEP)
        for keep in ("first", "last")
    }
    for keep, step in steps.items():
        app.publish(keep, step)
        app.publish(f"{keep}.late", step.late)
    held: dict[str, list[int]] = {keep: [] for keep in steps}
    with scripted_log(start=NOW) as log:
        begin = NOW - COMMITS * STEP
        for n in range(COMMITS):
            moment = begin + n * STEP
            new = [{"k": f"{n}-{key}", "at": moment} for key in range(KEYS)]
            log.write(events, *new, *new[:50], {"k": "always", "at": moment})

        def count(point: str) -> None:
            if point == "batch ended":
                with open_views(log.log.url, app="long") as views:
                    for keep, counts in held.items():
                        table = f'"long"."_headrace_groups_{keep}"'
                        counts += views.query(f"SELECT count(*) FROM {table}").rows[0]

        results = log.run(app, spark=shuffling(1), max_commits=6, crash_point=count)
        for keep, step in steps.items():
            check_distinct(keep, step, results, late=f"{keep}.late")
            assert results.law(keep).duplicates >= 50 * COMMITS
    # Open are the groups of the newest moment, and those less than four steps before it.
    bound = 4 * (KEYS + 1)
    assert all(max(counts) <= bound for counts in held.values()), held
    assert all(len(counts) >= COMMITS // 6 for counts in held.values())


def test_the_order_of_a_replay_is_the_order_of_the_log(log: ScriptedLog) -> None:
    feed(log, Feed(14), 20)
    found = []
    for cut in (1, 7, 1_000):
        finish(log, f"cut{cut}", cut)
        rows = [record.value for record in log.records(f"cut{cut}.first")]
        found.append(rows)
    assert found[0] == found[1] == found[2]
