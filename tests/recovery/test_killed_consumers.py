"""kill -9 of consumers, most of them while their group is being rebalanced."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.recovery.consuming import MODES, POLL, consume, handled, lag, make_log
from tests.recovery.crashing import KillAt, StepFile
from tests.waiting import left, wait_until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.consuming"])


def _kill(process: BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(timeout=left())


def _campaign(
    folder: Path, guarantee: str, records: int, kills: int, seed: int
) -> tuple[Counter[int], Counter[str]]:
    """Run three members, kill and replace one of them several times; then all finish the work."""
    choose = random.Random(seed)
    make_log(folder, records)
    steps: Counter[str] = Counter()
    count = 0

    def start(instance: str | None, kill_at: KillAt | None) -> tuple[BaseProcess, str]:
        nonlocal count
        count += 1
        name = f"member-{count}"
        process = _context.Process(
            target=consume, args=(folder, name, guarantee, instance, kill_at), daemon=True
        )
        process.start()
        return process, name

    steady = start("steady", None)[0]
    for kill in range(kills):
        # The first transactions of a member are for joining and leaving, so a kill there falls
        # into a rebalance. A static member's successor gets its place at once.
        step = choose.choice(("began", "before commit", "encoded", "recorded"))
        kill_at = KillAt(step, choose.randint(1, 8)) if kill % 4 else None
        process, name = start(choose.choice((None, "static")), kill_at)
        process.join(timeout=choose.uniform(0.1, 0.6))
        _kill(process)
        steps[StepFile(folder / f"{name}.step").step] += 1
        if kill % 5 == 4:
            _kill(steady)
            steady = start("steady", None)[0]
    finishers = [steady, start("static", None)[0]]
    wait_until(lambda: not lag(folder))
    # In `after` mode the next poll commits the last one, so a lag of 0 means all were handled.
    for process in finishers:
        _kill(process)
    return handled(folder, guarantee), steps


def _check(folder: Path, guarantee: str, records: int, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", "20260101"))
    counts, steps = _campaign(folder, guarantee, records, kills, seed)
    repeats = sum(counts.values()) - len(counts)
    skipped = records - len(counts)
    print(
        f"\n{guarantee}: {kills} kills (seed {seed}), {records} records: "
        f"{skipped} skipped, {repeats} repeated; killed at {dict(steps)}"
    )
    # Each process that was killed, the steady ones and the last two included, had polled at most
    # one batch that it had not committed.
    in_hands = POLL * (kills + kills // 5 + 2)
    if guarantee == "at most once":
        assert repeats == 0
        assert skipped <= in_hands
    elif guarantee == "at least once":
        assert skipped == 0
        assert repeats <= in_hands
    else:
        assert (skipped, repeats) == (0, 0)


@pytest.mark.parametrize("guarantee", MODES)
def test_a_killed_consumer_does_no_more_harm_than_its_guarantee_allows(
    tmp_path: Path, guarantee: str
) -> None:
    _check(tmp_path / "log", guarantee, records=3_000, kills=10)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", MODES)
def test_many_killed_consumers_do_no_more_harm_than_their_guarantee_allows(
    tmp_path: Path, guarantee: str
) -> None:
    _check(tmp_path / "log", guarantee, records=15_000, kills=60)
