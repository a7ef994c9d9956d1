"""Joins that crash or use other batches: the same rows, each published once."""

from __future__ import annotations

import pytest

from headrace.testing import POINTS, Crash, crash_at, scripted_log
from tests.recovery.joined import NOW, declare, feed, judge
from tests.spark import shuffling


def run_through(points: dict[str, int], commits: int, cut: int) -> None:
    """Crash at points, each for the nth time, and compare with an undisturbed run."""
    with scripted_log(start=NOW) as log:
        crashed, whole = declare("crashed"), declare("whole")
        begin = 0
        for seed, (point, nth) in enumerate(points.items()):
            feed(log, crashed, seed, commits, begin)
            begin += commits
            with pytest.raises(Crash):
                log.run(
                    crashed, spark=shuffling(2), max_commits=cut, crash_point=crash_at(point, nth)
                )
        found = judge(crashed, log.run(crashed, spark=shuffling(2), max_commits=cut))
        assert found == judge(whole, log.run(whole, spark=shuffling(3), max_commits=100_000))
        assert all(found.values())


@pytest.mark.slow
def test_a_join_that_crashed_tells_the_same() -> None:
    run_through({"stored panes": 2, "committed": 1}, commits=20, cut=6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cut", [1, 5])
def test_a_join_can_crash_anywhere(cut: int) -> None:
    run_through({point: 1 + n % 3 for n, point in enumerate(POINTS)}, commits=12, cut=cut)
