"""The log, a pipeline, compaction, retention, tiering, rebuilds and kills, all at once.

HEADRACE_SEED repeats the choices of a run, HEADRACE_SOAK_SECONDS sets the time of the slow one.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.soak.driver import Soak


def soak(folder: Path, seconds: float, *, spark: bool) -> Soak:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nHEADRACE_SEED={seed} HEADRACE_SOAK_SECONDS={seconds:g}")
    made = Soak(folder, seed, seconds, spark=spark)
    try:
        made.run()
    finally:
        print(made)
    return made


@pytest.mark.timeout(900)
def test_nothing_is_lost_twice_or_wrong_in_ten_seconds(tmp_path: Path) -> None:
    made = soak(tmp_path, 10, spark=False)
    assert made.happened["killed producer"] + made.happened["killed relay"] > 0
    assert made.accounts.counted["acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.timeout(6_000)
def test_nothing_is_lost_twice_or_wrong_in_half_an_hour(tmp_path: Path) -> None:
    made = soak(tmp_path, float(os.environ.get("HEADRACE_SOAK_SECONDS", "1800")), spark=True)
    assert made.accounts.counted["views compared"] > 0
