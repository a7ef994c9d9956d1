"""kill -9 of a process that joins tables, at every point of a round and at any moment between."""

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
from tests.recovery.order_tables import NOW, Feed, create_topics, declare, feed, judge
from tests.spark import shuffling

ROOT = Path(__file__).parents[2]
PATIENCE = 180


class Victim:
    """Joined tables that are killed again and again, while they change."""

    def __init__(self, log: ScriptedLog, folder: Path, seed: int) -> None:
        self._log = log
        self._folder = folder
        self._points = folder.parent / "points.txt"
        self._feed = Feed(seed)
        self._random = random.Random(seed)
        self.fell_on: Counter[str] = Counter()

    def kill_at(self, point: str, nth: int) -> None:
        """Let it run until it kills itself at a point."""
        feed(self._log, self._feed, 3 * nth + 3)
        assert self._start(point, nth).wait(PATIENCE) == -signal.SIGKILL, point
        self._record()

    def kill_soon(self) -> None:
        """Kill it from outside some moment after its first round began."""
        feed(self._log, self._feed, 18)
        process, clock = self._start("-", 0), SystemClock()
        while process.poll() is None and "batch began" not in self._reached():
            clock.sleep(20_000)
        clock.sleep(self._random.randrange(2_000_000))
        process.send_signal(signal.SIGKILL)
        if process.wait(PATIENCE) == -signal.SIGKILL:
            self._record()

    def _start(self, point: str, nth: int) -> subprocess.Popen[bytes]:
        self._points.unlink(missing_ok=True)
        return subprocess.Popen(
            [
                sys.executable, "-m", "tests.recovery.order_tables",
                str(self._folder), "killed", str(self._points), point, str(nth),
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


def recount(results: Results) -> None:
    """The view against DuckDB, which is told of the records and of the rule, not of us."""
    late = NOW.replace(hour=NOW.hour + 1)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for topic, column in (("orders", "product"), ("products", "name")):
            rows = []
            for batch in results.log.read(topic):
                for r in batch.records():
                    before = results.log.frontier(topic, (r.commit or 0) - 1) if r.commit else None
                    place = (r.commit, r.partition, r.offset)
                    if r.value is None:
                        rows.append((r.key, None, True, before or 0, *place))
                    elif r.value["at"] is not None and r.value["at"] <= late:
                        valid = int(r.value["at"].timestamp() * 1_000_000)
                        rows.append((r.value["id"], r.value[column], False, valid, *place))
            db.execute(
                f"CREATE TABLE {topic} (id TEXT, {column} TEXT, gone BOOLEAN, valid BIGINT, "
                "number BIGINT, part BIGINT, place BIGINT)"
            )
            db.executemany(f"INSERT INTO {topic} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            db.execute(
                f"CREATE VIEW {topic}_now AS SELECT * FROM {topic} QUALIFY row_number() OVER "
                "(PARTITION BY id ORDER BY valid DESC, number DESC, part DESC, place DESC) = 1"
            )
        counted = db.execute(
            "SELECT o.id, o.product, CASE WHEN NOT p.gone THEN p.name END FROM orders_now o "
            "LEFT JOIN products_now p ON p.id = o.product WHERE NOT o.gone ORDER BY ALL"
        ).fetchall()
    view = [(row["id"], row["product"], row["p_name"]) for row in results.view("priced")]
    assert sorted(view, key=lambda row: row[0]) == counted


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_killed_at_every_point_are_joined_as_if_nothing_had_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "log"
    with scripted_log(folder, start=NOW) as log:
        create_topics(log)
        victim = Victim(log, folder, seed=4)
        for point in POINTS:
            victim.kill_at(point, victim.fell_on.total() % 2 + 1)
        for _ in range(5):
            victim.kill_soon()
        found = []
        for name in ("killed", "spared"):
            results = log.run(declare(name)[0], spark=shuffling(1))
            found.append(judge(name, results))
            recount(results)
    assert found[0] == found[1]
    with capsys.disabled():
        told = ", ".join(f"{point} {n}" for point, n in victim.fell_on.items())
        print(f"\n  {victim.fell_on.total()} kills: {told}")
    assert set(POINTS) <= set(victim.fell_on)
