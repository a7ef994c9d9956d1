"""After a power cut, views and their outputs match the log that is left.

The log, the views and the outbox are on one disk that loses unsynced writes. Rows are written
without a sync while an application counts them, so that the log can be rolled back.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import VirtualClock
from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from headrace.plan.steps import Step, steps_of
from headrace.testing import Crash
from tests.property.judging import check_changelog, check_published, check_view
from tests.property.scripts import LATENESS, NOW, SCHEMA, SECOND
from tests.property.sinking import sink_all
from tests.property.test_publishing import TYPES, WINDOWS
from tests.recovery.lossy import LossyDisk

_POINTS = ("stored outputs", "before commit", "committed", "before sending", "sent")


class _NextBoot(Disk):
    """The disk after the machine has rebooted."""

    def boot(self) -> str:
        return "after the crash"


class _Rows:
    """Writes rows, some of them without a sync, and records how many must survive."""

    def __init__(self, log: Log, choose: random.Random, clock: VirtualClock) -> None:
        self._log = log
        self._choose = choose
        self._clock = clock
        self.written = self.promised = 0

    def write(self, commits: int) -> None:
        choose = self._choose
        for _ in range(commits):
            synced = choose.random() < 0.1
            with self._log.producer(acks="synced" if synced else "written") as producer:
                for _ in range(choose.randint(1, 4)):
                    late = choose.choice([0, 0, 10, 50, 200]) * SECOND
                    at = NOW + self.written * 7 * SECOND - late
                    key = choose.choice("ab")
                    producer.send("events", {"k": key, "n": self.written, "tags": None, "at": at})
                    self.written += 1
            if synced:
                self.promised = self.written
            self._clock.advance(timedelta(seconds=10))


def _declare(window: str, emit: Any) -> tuple[hr.App, hr.Aggregation, Step]:
    app = hr.App("told")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    counts = hr.aggregate(
        source, by="k", window=WINDOWS[window], lateness=LATENESS, emit=emit, rows=hr.count()
    )
    app.view("counts", counts)
    app.publish("out", counts)
    (step,) = steps_of(app)
    return app, counts, step


def _one_cut(home: Path, seed: int, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Count rows, cut the power, reboot, count the rest; returns the rows written and left."""
    choose, clock = random.Random(seed), VirtualClock(NOW)
    folder, after = home / "log", home / "after"
    for path in (folder, after):
        shutil.rmtree(path, ignore_errors=True)
    app, counts, step = _declare(
        choose.choice(["tumbling", "session"]), choose.choice(["updates", "final", "final"])
    )
    disk = LossyDisk()
    with disk.everywhere(patch):
        log = FileLog(folder, disk=disk, clock=clock)
        log.ensure_topic(app.topics["events"])
        rows = _Rows(log, choose, clock)
        left = choose.randint(1, 40)

        def crash_point(point: str) -> None:
            """Rows arrive at any point, and at some point the power is cut."""
            nonlocal left
            left -= point in _POINTS
            if left <= 0:
                disk.crash(folder, after, choose)  # now, because closing it later would sync it
                raise Crash
            if point != "before sending" and choose.random() < 0.3:
                rows.write(choose.randint(1, 2))

        with contextlib.suppress(Crash):
            for _ in range(5):
                rows.write(choose.randint(1, 4))
                sink_all(
                    log, step, TYPES, max_commits=choose.randint(1, 4), crash_point=crash_point
                )
            left = 0
            crash_point(_POINTS[0])
        log.close()
    with FileLog(after, disk=_NextBoot(), clock=clock) as again:
        again.ensure_topic(app.topics["events"])
        kept = again.topic("events").records
        assert kept >= rows.promised, f"{rows.promised} rows were synced, {kept} are left"
        more = _Rows(again, choose, clock)
        more.written = kept
        more.write(choose.randint(0, 4))
        results = sink_all(again, step, TYPES, max_commits=choose.randint(1, 4))
        check_view("counts", counts, results)
        check_published("out", counts, results)
        check_changelog("told.counts.changes", counts, results, "counts")
        return rows.written, kept


def _cuts(home: Path, count: int, patch: pytest.MonkeyPatch) -> int:
    """Repeat power cuts; returns how often rows were lost."""
    made = left = short = 0
    for seed in range(count):
        rows, kept = _one_cut(home, seed, patch)
        made, left, short = made + rows, left + kept, short + (kept < rows)
    print(f"\n{count} power cuts: {made} rows, {left} left; {short} times fewer than before")
    return short


@pytest.mark.slow
def test_views_and_outputs_are_right_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _cuts(tmp_path, 40, monkeypatch) > 10, "nothing was ever lost, so nothing was tested"


def test_without_a_sync_of_the_log_views_are_ahead_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileLog, "sync", lambda *_: None)
    with pytest.raises(HeadraceError, match="on are gone: they were not synced"):
        _cuts(tmp_path, 40, monkeypatch)
