"""From topic to topic on Kafka, each row once, whatever is killed and when."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.clock import SystemClock
from headrace.runtime.kafka import delivery
from headrace.runtime.kafka.outlet import Outlet
from headrace.servers.kafka import Cluster
from headrace.servers.kafka.state import ClusterState
from headrace.testing import Crash, crash_at
from tests import kafka as brokers
from tests.kafka_runs import Runs, runs
from tests.recovery.relay import ROWS, declare, expected, found, row
from tests.spark import shared
from tests.waiting import left, started

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
POINTS = ("batch began", "computed", "set aside", "before commit", "committed", "batch ended")


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def crash(kafka: Runs, point: str, sent: int) -> int:
    """Send more rows, and crash at a point of the first batch; returns the rows sent so far."""
    app, source, _ = declare(kafka.tag)
    kafka.send(source, *map(row, range(sent, sent + ROWS)))
    with pytest.raises(Crash):
        kafka.run(app, max_rows=ROWS // 2, crash_point=crash_at(point))
    return sent + ROWS


def test_a_relay_that_crashes_at_every_point_writes_each_row_once(kafka: Runs) -> None:
    app, _, out = declare(kafka.tag)
    sent = 0
    for point in POINTS:
        sent = crash(kafka, point, sent)
    results = kafka.run(app)
    assert found(kafka.log, out) == expected(range(sent))
    law = results.law(out)
    assert law.holds
    assert (law.rows, law.counted) == (sent, sum(expected(range(sent)).values()))


@pytest.mark.slow
def test_without_the_fence_a_crashed_relay_writes_rows_twice(
    kafka: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "Outlet", functools.partial(Outlet, fenced=False))
    app, _, out = declare(kafka.tag)
    sent = crash(kafka, "computed", 0)
    kafka.run(app)
    twice = found(kafka.log, out)
    assert set(twice) == set(expected(range(sent)))
    assert max(twice.values()) == 2


class Victim:
    """A relay in a separate process that is killed and restarted."""

    def __init__(self, kafka: Runs, folder: Path, seed: int) -> None:
        self._kafka = kafka
        self._points = folder / "points.txt"
        self._random = random.Random(seed)
        self.sent = 0
        self.fell_on: Counter[str] = Counter()

    def feed(self, rows: int = ROWS) -> None:
        _, source, _ = declare(self._kafka.tag)
        self._kafka.send(source, *map(row, range(self.sent, self.sent + rows)))
        self.sent += rows

    def kill_at(self, point: str) -> None:
        """Let it run until it kills itself at a point."""
        self.feed()
        assert self.start(point, self._random.randint(1, 2)).wait(left()) == -signal.SIGKILL
        self._record()

    def kill_soon(self) -> None:
        """Kill it some time after its first batch began."""
        self.feed(5 * ROWS)
        process = self.start("-", 0)
        assert self.wait_for_batch(process), "it ended before its first batch"
        SystemClock().sleep(self._random.randrange(1_500_000))
        process.send_signal(signal.SIGKILL)
        if process.wait(left()) == -signal.SIGKILL:
            self._record()

    def start(self, point: str, nth: int) -> subprocess.Popen[bytes]:
        self._points.unlink(missing_ok=True)
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.recovery.relay",
                self._kafka.servers, self._kafka.tag, str(self._points), point, str(nth),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
        return started(process)

    def wait_for_batch(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the start of a batch; returns false if the process ended first."""
        clock = SystemClock()
        while not (began := "batch began" in self._reached()) and process.poll() is None:
            clock.sleep(20_000)
        return began

    def check(self) -> None:
        """Check that it continues to the end, and that every row is there once."""
        app, _, out = declare(self._kafka.tag)
        results = self._kafka.run(app)
        assert found(self._kafka.log, out) == expected(range(self.sent))
        assert results.law(out).holds
        assert results.law(out).rows == self.sent

    def _reached(self) -> str:
        return self._points.read_text() if self._points.exists() else ""

    def _record(self) -> None:
        points = self._reached().splitlines()
        self.fell_on[points[-1] if points else "starting"] += 1


@pytest.mark.slow
def test_a_killed_relay_writes_each_row_once(kafka: Runs, tmp_path: Path) -> None:
    victim = Victim(kafka, tmp_path, seed=1)
    victim.kill_at("computed")
    victim.check()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_relay_killed_thirty_times_writes_each_row_once(
    kafka: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = Victim(kafka, tmp_path, seed=2)
    for number in range(18):
        victim.kill_at(POINTS[number % len(POINTS)])
    while sum(victim.fell_on.values()) < 30:
        victim.kill_soon()
    victim.check()
    with capsys.disabled():
        print(f"\n  {sum(victim.fell_on.values())} kills: {dict(victim.fell_on)}")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_relay_whose_broker_is_killed_ten_times_writes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with brokers.running(tmp_path / "kafka") as cluster:
        broker_killed(cluster, tmp_path, monkeypatch, times=10)


def broker_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Kill the broker while a relay runs, and start it again on its data."""
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    clock, chance = SystemClock(), random.Random(3)
    under_way = 0
    (node,) = cluster.state().nodes
    with runs(f"127.0.0.1:{node.port}", shared()) as kafka:
        victim = Victim(kafka, tmp_path, seed=3)
        for _ in range(times):
            victim.feed(5 * ROWS)
            process = victim.start("-", 0)
            began = victim.wait_for_batch(process)
            clock.sleep(chance.randrange(1_500_000))
            under_way += began and process.poll() is None
            cluster.kill(node.id)
            clock.sleep(chance.randrange(1_000_000))
            cluster.up()
            assert process.wait(left()) in (0, 1)  # it has ended, or given up
        # else the check below would be the first to do anything
        assert under_way > times // 2, f"only {under_way} kills fell on a batch"
        victim.check()
