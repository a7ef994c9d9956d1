"""An application that was backed up in the middle of a batch continues after a restore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.application.safekeeping.backup import backup, restore
from headrace.testing import ScriptedLog, scripted_log
from tests.recovery.pipeline import NOW, Feed, Which, create_topic, declare, everything, feed, judge
from tests.spark import shuffling
from tests.unit.test_safekeeping import quietly

# Not the points inside the views' own transaction: a backup waits for its end.
MOMENTS = ("batch began", "computed", "committed", "sent", "batch ended")


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        create_topic(log)
        yield log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "moments"),
    [("small", ("computed", "committed")), ("grid", MOMENTS), ("state", MOMENTS)],
)
def test_a_backup_made_at_any_point_of_a_batch_goes_on_to_the_same_results(
    log: ScriptedLog, tmp_path: Path, which: Which, moments: tuple[str, ...]
) -> None:
    feed(log, Feed(5), 12)
    app, steps = declare("kept", which)
    made: dict[str, Path] = {}
    left_out: list[str] = []
    times = 0

    def back_up(point: str) -> None:
        nonlocal times
        times += point == "batch began"
        if times == 3 and point in moments and point not in made:
            made[point] = tmp_path / point.replace(" ", "-")
            left_out.extend(backup(log.log.url, made[point], quietly).left_out)

    results = log.run(app, spark=shuffling(2), max_commits=3, crash_point=back_up)
    judge(app, steps, results)
    assert (sorted(made), left_out) == (sorted(moments), [])
    for place in made.values():
        folder = tmp_path / "again" / place.name
        restore(place, f"file:{folder}", quietly)
        with scripted_log(folder, start=NOW) as again:
            resumed = again.run(app, spark=shuffling(2), max_commits=5)
            judge(app, steps, resumed)
            assert everything(app, resumed) == everything(app, results)
