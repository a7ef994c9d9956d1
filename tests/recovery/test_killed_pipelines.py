"""kill -9 of running pipelines, at every point of a batch and at any moment between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from headrace.clock import SystemClock
from headrace.testing import POINTS, Results, ScriptedLog, scripted_log
from tests.recovery.pipeline import (
    LATENESS,
    NOW,
    TOPIC,
    Feed,
    Which,
    create_topic,
    declare,
    everything,
    feed,
    judge,
)
from tests.spark import shuffling

ROOT = Path(__file__).parents[2]

PATIENCE = 180


class Victim:
    """A pipeline that is started and killed, again and again, while its topic grows."""

    def __init__(self, log: ScriptedLog, folder: Path, seed: int, which: Which = "grid") -> None:
        self.log = log
        self.which: Which = which
        self._folder = folder
        self._points = folder.parent / "points.txt"
        self._feed = Feed(seed)
        self._random = random.Random(seed)
        self.fell_on: Counter[str] = Counter()

    def kill_at(self, point: str, nth: int) -> None:
        """Let it run until it kills itself at a point."""
        feed(self.log, self._feed, 3 * nth + 3)
        assert self._start(point, nth).wait(PATIENCE) == -signal.SIGKILL, point
        self._record()

    def kill_soon(self) -> None:
        """Kill it from outside some moment after its first batch began."""
        feed(self.log, self._feed, 18)
        process = self._start("-", 0)
        clock = SystemClock()
        while process.poll() is None and "batch began" not in self._reached():
            clock.sleep(20_000)
        clock.sleep(self._random.randrange(3_000_000))
        process.send_signal(signal.SIGKILL)
        if process.wait(PATIENCE) == -signal.SIGKILL:
            self._record()

    def _start(self, point: str, nth: int) -> subprocess.Popen[bytes]:
        self._points.unlink(missing_ok=True)
        return subprocess.Popen(
            [
                sys.executable, "-m", "tests.recovery.piping",
                str(self._folder), "killed", self.which, str(self._points), point, str(nth),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _reached(self) -> str:
        return self._points.read_text() if self._points.exists() else ""

    def _record(self) -> None:
        points = self._reached().splitlines()
        self.fell_on[points[-1] if points else "starting"] += 1


def check(victim: Victim) -> None:
    """It goes on to the end, and has what a pipeline has that nobody ever killed."""
    found = []
    for name in ("killed", "spared"):
        app, steps = declare(name, victim.which)
        results = victim.log.run(app, spark=shuffling(2))
        judge(app, steps, results)
        found.append(everything(app, results))
        if victim.which == "grid":
            recount(results)
    assert found[0] == found[1]


def recount(results: Results) -> None:
    """The tumbling view against DuckDB, which is told of the rows and of the rule, not of us."""
    rows = [
        (record.commit, record.value["shop"], record.value["item"], record.value["price"], at)
        for batch in results.log.read(TOPIC)
        for record in batch.records()
        if (at := record.value["at"]) is not None and at <= NOW.replace(hour=NOW.hour + 1)
    ]
    wait = int((LATENESS.delay + LATENESS.grace).total_seconds())
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(
            "CREATE TABLE r (number BIGINT, shop TEXT, item TEXT, price DECIMAL(10,2), "
            "moment TIMESTAMPTZ)"
        )
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", rows)
        counted = db.execute(
            f"""
            WITH commits AS (SELECT number, max(moment) AS newest FROM r GROUP BY number),
            frontiers AS (
                SELECT number, max(newest) OVER (
                    ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS frontier
                FROM commits)
            SELECT shop, strftime(time_bucket(INTERVAL 1 MINUTE, moment), '%Y-%m-%d %H:%M:%S') AS w,
                count(*), sum(price)
            FROM r JOIN frontiers USING (number)
            WHERE item != 'gift' AND (frontier IS NULL OR
                time_bucket(INTERVAL 1 MINUTE, moment) + INTERVAL 1 MINUTE
                    + INTERVAL {wait} SECOND > frontier)
            GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()
    view = sorted(
        (row["shop"], row["window_start"], row["orders"], row["revenue"])
        for row in results.view("sales")
    )
    assert view == [(shop, start, n, str(total)) for shop, start, n, total in counted]


@pytest.mark.timeout(900)
def test_a_killed_pipeline_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = Victim(log, folder, seed=1)
        for point in ("stored panes", "committed"):
            victim.kill_at(point, 2)
        check(victim)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "seed", "more"), [("grid", 2, 10), ("own", 3, 4), ("state", 4, 4)]
)
def test_pipelines_killed_at_every_point_many_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: Which, seed: int, more: int
) -> None:
    fell_on = killed_at_every_point(tmp_path / "log", seed, which, times=2, more=more)
    report(fell_on, capsys)


def killed_at_every_point(
    folder: Path, seed: int, which: Which, *, times: int, more: int
) -> Counter[str]:
    with scripted_log(folder, start=NOW) as log:
        create_topic(log)
        victim = Victim(log, folder, seed, which)
        for nth in range(1, times + 1):
            for point in POINTS:
                victim.kill_at(point, nth)
        for _ in range(more):
            victim.kill_soon()
        check(victim)
    return victim.fell_on


def report(fell_on: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        kills = sum(fell_on.values())
        print(f"\n  {kills} kills: {', '.join(f'{point} {n}' for point, n in fell_on.items())}")
    assert kills >= 20
    assert set(POINTS) <= set(fell_on)


@pytest.mark.slow
def test_alerts_are_told_once_by_a_pipeline_that_is_killed_at_every_point(tmp_path: Path) -> None:
    fell_on = killed_at_every_point(tmp_path / "log", 5, "alerts", times=1, more=4)
    print(f"\n  {sum(fell_on.values())} kills: {dict(fell_on)}")
    assert set(POINTS) <= set(fell_on)


@pytest.mark.slow
def test_what_drops_duplicates_is_killed_at_every_point(tmp_path: Path) -> None:
    fell_on = killed_at_every_point(tmp_path / "log", 4, "distinct", times=1, more=4)
    print(f"\n  {sum(fell_on.values())} kills: {dict(fell_on)}")
    assert set(POINTS) <= set(fell_on)
