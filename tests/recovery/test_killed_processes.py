"""kill -9 of the runners of a process manager: no command is lost, and none is sent twice."""

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

from headrace.log.file.log import FileLog
from tests.recovery.crashing import STEPS, KillAt, StepFile
from tests.recovery.transferring import check, feed, make_log, run
from tests.waiting import left, wait_until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.transferring"])

RUNNERS = ("x", "y")
MOMENTS = [step for step in STEPS if step not in ("not begun", "created a segment")]


def _campaign(
    folder: Path,
    kills: int,
    *,
    lacks: str = "",
    runners: Sequence[str] = RUNNERS,
    always: KillAt | None = None,
) -> Counter[str]:
    """Run the process in several places; kill one after the other and start it again.

    With `always`, each kills itself there.
    """
    choose = random.Random(int(os.environ.get("HEADRACE_SEED", "20260101")))
    make_log(folder)
    running: dict[str, BaseProcess] = {}
    steps: Counter[str] = Counter()

    def start(name: str, kill_at: KillAt | None) -> None:
        process = _context.Process(target=run, args=(folder, name, kill_at, lacks), daemon=True)
        process.start()
        running[name] = process

    def stop(name: str) -> None:
        process = running[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(timeout=left())
        assert process.exitcode == -signal.SIGKILL, "the runner failed by itself"
        steps[StepFile(folder / f"{name}.step").step] += 1

    with FileLog(folder) as log:
        asked = feed(log, 0, 3)
        for name in runners:
            start(name, always)
        for kill in range(kills):
            name = choose.choice(list(runners))
            # Two or more of the four transfers lead to a commit of the process and two commands.
            enough = None if always else log.head() + 4 + choose.randint(1, 3)
            asked = feed(log, asked, 4)
            wait_until(lambda: _is_over(running[name], log, enough))  # noqa: B023
            stop(name)
            # Half of them kill themselves at a step, so that each is met.
            there = KillAt(choose.choice(MOMENTS), choose.randint(1, 6)) if kill % 2 == 0 else None
            start(name, always or there)
    for name in runners:
        stop(name)
    print(f"\n{kills} kills at {dict(steps)}")
    return steps


def test_killed_runners_lose_no_command_and_send_none_twice(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=3)
    print(dict(check(tmp_path / "log")))


@pytest.mark.slow
def test_a_hundred_killed_runners_lose_no_command_and_send_none_twice(tmp_path: Path) -> None:
    _campaign(tmp_path / "log", kills=100)
    counts = check(tmp_path / "log")
    print(dict(counts))
    assert min(counts["Arrive"], counts["GiveBack"], counts["Remind"]) > 100


@pytest.mark.parametrize(
    ("lacks", "time", "said"), [("ids", 2, "two effects"), ("sending again", 1, "lost")]
)
def test_without_a_fence_the_check_fails(tmp_path: Path, lacks: str, time: int, said: str) -> None:
    there = KillAt("committed", time)
    _campaign(tmp_path / "log", kills=3, lacks=lacks, runners=["x"], always=there)
    with pytest.raises(AssertionError, match=said):
        check(tmp_path / "log")


def _is_over(runner: BaseProcess, log: FileLog, enough: int | None) -> bool:
    """True if a runner has ended, or if the log has enough commits."""
    return not runner.is_alive() or (enough is not None and log.head() >= enough)
