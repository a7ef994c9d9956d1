"""kill -9 of processes that join streams, or look up rows in a table, at every point of a batch."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from headrace.testing import ScriptedLog, scripted_log
from tests.recovery.joined import NOW, Part, declare, feed, judge
from tests.recovery.victim import Victim
from tests.spark import shuffling

COMMITS = 10
"""Enough for a batch of three commits of each of three topics."""


def victim_of(log: ScriptedLog, folder: Path, part: Part) -> Victim:
    app, seeds, begin = declare("fed"), count(), count(step=COMMITS)

    def more(batches: int) -> None:
        for _ in range(batches):
            feed(log, app, next(seeds), COMMITS, next(begin))

    return Victim(folder, part, 7, more)


def check(log: ScriptedLog, part: Part) -> None:
    """Check that it runs to the end, with the results of the oracle and of an undisturbed run."""
    found = []
    for name in ("killed", "spared"):
        app = declare(name, (part,))
        found.append(judge(app, log.run(app, spark=shuffling(2))))
    assert found[0] == found[1]
    assert all(found[0].values())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("part", "point"), [("pairs", "stored panes"), ("known", "sent")])
def test_a_join_that_was_killed_tells_the_same(tmp_path: Path, part: Part, point: str) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        victim = victim_of(log, folder, part)
        victim.kill_at(point, 2)
        check(log, part)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ["pairs", "known"])
def test_joins_killed_at_every_point_tell_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: Part
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        victim = victim_of(log, folder, part)
        victim.kill_everywhere(more=4)
        check(log, part)
    with capsys.disabled():
        print(f"\n  {victim}")
    assert victim.fell_on.total() >= 12
