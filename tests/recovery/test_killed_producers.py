"""kill -9 of real producers, at every step of the commit protocol and at random moments."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from headrace.log.file.log import FileLog
from headrace.log.roles import Acks
from tests.recovery.crashing import STEPS, KillAt, StepFile
from tests.recovery.producing import Found, batch_of, check, make_log, produce
from tests.waiting import left

_MODES = {"appender": "append", "sender": "send", "banker": "transaction"}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.producing"])


def _start(folder: Path, producer: str, acks: Acks, kill_at: KillAt | None) -> BaseProcess:
    process = _context.Process(
        target=produce, args=(folder, producer, _MODES[producer], acks, kill_at), daemon=True
    )
    process.start()
    return process


def _kill_one(folder: Path, producer: str, acks: Acks, kill_at: KillAt | None, delay: float) -> str:
    """Run a producer until it is dead; returns the last step that it reached."""
    process = _start(folder, producer, acks, kill_at)
    if kill_at is None:
        time.sleep(delay)  # noqa: TID251 - a real process is killed at a random real moment
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
    process.join(timeout=left())
    assert process.exitcode == -signal.SIGKILL, f"{producer} ended with {process.exitcode}"
    return StepFile(folder / f"{producer}.step").step


def _campaign(folder: Path, kills: int, seed: int) -> tuple[Counter[str], Found]:
    """Kill producers several times, with two of them running at any time."""
    choose = random.Random(seed)
    make_log(folder)
    steps: Counter[str] = Counter()
    names = list(_MODES)
    aims = itertools.cycle(STEPS[1:])
    found = Found()
    for kill in range(kills):
        producer = names[kill % len(names)]
        other = _start(folder, names[(kill + 1) % len(names)], "written", None)
        kill_at = None
        acks: Acks = choose.choice(("written", "synced"))
        if kill % 3 != 2:
            # Each step in turn; creating a segment is rare.
            step = next(aims)
            rare = step == "created a segment"
            acks = "synced" if step == "synced a segment" else acks
            kill_at = KillAt(step, 1 if rare else choose.randint(1, 12))
        steps[_kill_one(folder, producer, acks, kill_at, choose.uniform(0.0, 0.15))] += 1
        other.kill()
        other.join(timeout=left())
        if kill % 10 == 9 or kill == kills - 1:
            found = check(folder, _MODES)
    return steps, found


def _report(kills: int, seed: int, steps: Counter[str], found: Found) -> None:
    print(f"\n{kills} kills (seed {seed}); acked {found.acked:,} batches, all of them there once;")
    print(f"read {found.records:,} records in {found.batches:,} whole batches; killed at:")
    for step in STEPS:
        print(f"  {step:20} {steps[step]:4}")


def _check_campaign(folder: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", "20260101"))
    steps, found = _campaign(folder, kills, seed)
    _report(kills, seed, steps, found)
    assert steps.total() == kills
    assert found.acked > kills
    missed = [step for step in STEPS[1:] if not steps[step]]
    assert not missed, f"no kill fell on: {missed}"


def test_nothing_acknowledged_is_lost_doubled_or_torn_by_kill_9(tmp_path: Path) -> None:
    _check_campaign(tmp_path / "log", kills=27)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_doubled_or_torn_by_200_kills(tmp_path: Path) -> None:
    _check_campaign(tmp_path / "log", kills=200)


def test_the_check_notices_a_batch_that_is_there_twice(tmp_path: Path) -> None:
    make_log(tmp_path)
    with FileLog(tmp_path) as log, log.producer() as producer:
        producer.append("left", batch_of("appender", 0))
        producer.append("left", batch_of("appender", 0))
    with pytest.raises(AssertionError, match=r"out of order|doubled"):
        check(tmp_path, {"appender": "append"})


def test_the_check_notices_half_a_batch_and_half_a_transaction(tmp_path: Path) -> None:
    make_log(tmp_path)
    with FileLog(tmp_path) as log, log.producer() as producer:
        producer.append("left", batch_of("appender", 0).slice(1))
        producer.append("left", batch_of("banker", 0))
    with pytest.raises(AssertionError, match="torn"):
        check(tmp_path, {"appender": "append"})
    with pytest.raises(AssertionError, match="half a transaction"):
        check(tmp_path, {"banker": "transaction"})


def test_the_check_notices_a_loss(tmp_path: Path) -> None:
    make_log(tmp_path)
    (tmp_path / "appender.acked").write_text("0\n1\n")
    with FileLog(tmp_path) as log, log.producer() as producer:
        producer.append("left", batch_of("appender", 0))
    with pytest.raises(AssertionError, match="acked and not in the log"):
        check(tmp_path, {"appender": "append"})
