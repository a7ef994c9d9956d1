"""Rebuilds that crash: the live view is the old version or the new one, and both can continue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.application.preflight import preflight
from headrace.store.location import build_place, checkpoint_of
from headrace.testing import POINTS, REBUILD_POINTS, Crash, ScriptedLog, crash_at, scripted_log
from tests.property.judging import check_changelog, check_view
from tests.recovery.rebuilt import NOW, RIGHT, SECOND, WRONG, Shop, fill, results_of

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW + 3600 * SECOND) as log:
        yield log


class Case:
    """A shop with two versions in turn: each is rebuilt into the other, with a crash."""

    def __init__(self, log: ScriptedLog) -> None:
        self.shop = Shop(log)
        fill(self.shop)
        self.live, self.next = WRONG, RIGHT
        self._second = 500
        self.shop.run(self.live)

    def crash(self, point: str) -> None:
        """Crash a rebuild, and check that a run and the next rebuild can both continue."""
        with pytest.raises(Crash):
            self.shop.switch(self.next, crash_point=crash_at(point))
        if self.switched(point):
            self.live, self.next = self.next, self.live
        app, *_ = self.shop.declare(self.live)
        assert preflight(app, self.shop.log.log).ok, point
        self._second += 5
        self.shop.write(("pen", 8, self._second), ("ink", 20, self._second))
        self.shop.judge(self.live, self.shop.run(self.live))
        place = build_place(self.shop.log.log.url, "shop", "sales")
        assert place.folder.exists() != self.switched(point)

    @staticmethod
    def switched(point: str) -> bool:
        """True if a crash at a point leaves the new version live."""
        after = REBUILD_POINTS[REBUILD_POINTS.index("switched") :]
        return point in after or point in ("before sending", "sent")


@pytest.mark.slow
def test_a_crash_around_the_switch_leaves_one_version_that_goes_on(log: ScriptedLog) -> None:
    case = Case(log)
    for point in ("before switch", "switched", "checkpoint removed"):
        case.crash(point)


@pytest.mark.slow
def test_a_crash_at_any_point_of_a_rebuild_leaves_one_version_that_goes_on(
    log: ScriptedLog,
) -> None:
    case = Case(log)
    for point in (*POINTS, *REBUILD_POINTS):
        case.crash(point)


@pytest.mark.slow
def test_a_rebuild_after_a_crash_finishes_the_switch_first(log: ScriptedLog) -> None:
    shop = Case(log).shop
    with pytest.raises(Crash):
        shop.switch(RIGHT, crash_point=crash_at("switched"))
    done = shop.switch(WRONG)
    assert done is not None
    assert (done.removed, done.changed) == (3, 1)
    shop.judge(WRONG, shop.run(WRONG))


@pytest.mark.slow
def test_without_the_checkpoint_of_the_rebuild_the_view_goes_on_all_the_same(
    log: ScriptedLog,
) -> None:
    shop = Case(log).shop
    shop.switch(RIGHT)
    shutil.rmtree(checkpoint_of(log.log.url, "shop", "sales"))
    shop.write(("pen", 8, 500))
    shop.judge(RIGHT, shop.run(RIGHT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"window": hr.session(20 * SECOND)},
        {"window": hr.sliding(30 * SECOND)},
        {"emit": "final"},
        {"emit": "final", "window": hr.session(20 * SECOND)},
    ],
    ids=["session", "sliding", "final", "final session"],
)
def test_every_kind_of_window_can_be_switched_to_and_back(
    log: ScriptedLog, changes: dict[str, Any]
) -> None:
    shop = Shop(log)
    fill(shop)
    shop.run(WRONG)
    shop.switch(RIGHT, **changes)
    judge_view(shop, RIGHT, **changes)
    shop.write(("pen", 8, 205), ("ink", 20, 400))
    shop.run(RIGHT, **changes)
    judge_view(shop, RIGHT, **changes)
    shop.switch(WRONG)
    shop.write(("pen", 88, 410))
    shop.run(WRONG)
    judge_view(shop, WRONG)


def judge_view(shop: Shop, condition: str, **changes: Any) -> None:
    """Check the view and its changelog; late rows are those of the version that read them."""
    results = results_of(shop.log, "shop")
    _, _, sales = shop.declare(condition, **changes)
    check_view("sales", sales, results)
    check_changelog("shop.sales.changes", sales, results, "sales")
