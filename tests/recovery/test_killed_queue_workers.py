"""kill -9 of queue workers: no message is lost, none is accepted twice, and keys keep their order.

A message's result commits with its acceptance, so there is exactly one result of each, too.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.recovery.crashing import KillAt, StepFile
from tests.recovery.working import found, make_log, put, run_slow_worker, run_worker, unfinished
from tests.waiting import left, wait_until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.working"])


MOMENTS = ("began", "before commit", "encoded", "recorded", "writing")


def _kill(process: BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(timeout=left())


def _check(folder: Path, messages: int, kills: int, lacks: str = "") -> None:
    """Kill workers while messages are put. One more is late: another does its work meanwhile."""
    seed = int(os.environ.get("HEADRACE_SEED", "20260101"))
    choose = random.Random(seed)
    make_log(folder)
    each = messages // kills
    steps: Counter[str] = Counter()

    def start(name: str, kill_at: KillAt | None = None, prefetch: int = 20) -> BaseProcess:
        arguments = (folder, name, kill_at, lacks, prefetch)
        process = _context.Process(target=run_worker, args=arguments, daemon=True)
        process.start()
        return process

    slow = _context.Process(target=run_slow_worker, args=(folder, lacks), daemon=True)
    slow.start()
    put(folder, range(1))
    wait_until((folder / "slow.begun").exists)
    steady = start("steady", prefetch=1)  # the others get the most of the work
    for kill in range(kills):
        # Right after it has committed a result, if that is not the commit that accepts.
        step = "committed" if lacks else choose.choice(MOMENTS)
        kill_at = KillAt(step, choose.randint(1, 6)) if kill % 3 else None
        process = start(f"victim-{kill}", kill_at)
        wait_until((folder / f"victim-{kill}.ready").exists)
        put(folder, range(kill * each + 1, (kill + 1) * each + 1))
        process.join(timeout=choose.uniform(0, 1) if kill_at is None else 3)
        _kill(process)
        steps[StepFile(folder / f"victim-{kill}.step").step] += 1
    wait_until(lambda: not unfinished(folder))
    _kill(steady)
    (folder / "slow.go").touch()
    slow.join(timeout=left())
    assert slow.exitcode == 0
    what = found(folder)
    print(f"\n{kills} kills (seed {seed}), {messages} messages; killed at {dict(steps)}")
    assert sorted(what.results) == list(range(messages + 1)), "a message was lost"
    assert set(what.results.values()) == {1}, "a message has two results"
    assert len(what.accepted) == messages + 1
    assert set(what.accepted.values()) == {1}, "a message was accepted twice"
    assert what.disordered == []


def test_a_killed_worker_loses_no_message_and_none_is_accepted_twice(tmp_path: Path) -> None:
    _check(tmp_path / "log", messages=600, kills=4)


@pytest.mark.parametrize("lacks", ["lease token", "atomic accept"])
def test_without_a_fence_the_check_fails(tmp_path: Path, lacks: str) -> None:
    with pytest.raises(AssertionError, match="a message has two results"):
        _check(tmp_path / "log", messages=400, kills=5, lacks=lacks)


@pytest.mark.slow
def test_many_killed_workers_lose_no_message_and_none_is_accepted_twice(tmp_path: Path) -> None:
    _check(tmp_path / "log", messages=20_000, kills=100)
