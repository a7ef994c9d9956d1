"""kill -9 of command handlers that compete for the same accounts: nothing is lost or doubled."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from tests.recovery.crashing import STEPS, KillAt, StepFile
from tests.recovery.handling import check, handle, make_log
from tests.waiting import left, wait_until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.handling"])

CLIENTS = ("x", "y", "z")
MOMENTS = [step for step in STEPS if step not in ("not begun", "created a segment")]


def _campaign(
    folder: Path, kills: int, *, lacks: str = "", moments: Sequence[str] = MOMENTS
) -> Counter[str]:
    """Run three handlers; kill one after the other and start it again."""
    choose = random.Random(int(os.environ.get("HEADRACE_SEED", "20260101")))
    make_log(folder)
    running: dict[str, BaseProcess] = {}
    begun: dict[str, int] = {}
    steps: Counter[str] = Counter()

    def answers(name: str) -> int:
        path = folder / f"{name}.answers"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def start(name: str, kill_at: KillAt | None) -> None:
        begun[name] = answers(name)
        process = _context.Process(target=handle, args=(folder, name, kill_at, lacks), daemon=True)
        process.start()
        running[name] = process

    def until(name: str, more: int) -> None:
        """Wait for that many answers, or for the handler's end."""
        enough = begun[name] + more
        wait_until(lambda: not running[name].is_alive() or answers(name) >= enough)

    def stop(name: str) -> None:
        process = running[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(timeout=left())
        failed = process.exitcode != -signal.SIGKILL
        assert lacks or not failed, "the handler failed by itself"

    for name in CLIENTS:
        start(name, None)
    for kill in range(kills):
        name = choose.choice(CLIENTS)
        until(name, choose.randint(1, 5))
        stop(name)
        steps[StepFile(folder / f"{name}.step").step] += 1
        # Half of them kill themselves at a step, so that each is met.
        there = KillAt(choose.choice(moments), choose.randint(1, 8)) if kill % 2 == 0 else None
        start(name, there)
    for name in CLIENTS:
        until(name, 1)
        stop(name)
    print(f"\n{kills} kills at {dict(steps)}")
    return steps


def test_killed_handlers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=5)
    print(dict(check(tmp_path / "log")))


@pytest.mark.slow
def test_a_hundred_killed_handlers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=100)
    counts = check(tmp_path / "log")
    print(dict(counts))
    assert counts["accepted"] > 100
    assert counts["refused"] > 100


def test_without_conditions_the_check_fails(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=4, lacks="conditions")
    with pytest.raises((AssertionError, HeadraceError)):
        check(tmp_path / "log")


def test_without_ids_the_check_fails(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=4, lacks="ids", moments=["committed"])
    with pytest.raises(AssertionError, match="two effects"):
        check(tmp_path / "log")
