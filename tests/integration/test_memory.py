"""The driver's memory does not grow with a pipeline's output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.growing import KINDS

ROOT = Path(__file__).parents[2]
SMALL, LARGE = 10_000, 1_000_000


def run(folder: Path, kind: str, size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.integration.growing", str(folder / str(size)), kind,
         str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


def peak(folder: Path, kind: str, size: int) -> int:
    """The driver's peak memory for a kind of pipeline."""
    done = run(folder, kind, size)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def compare(folder: Path, kind: str) -> str:
    small, large = (peak(folder, kind, size) for size in (SMALL, LARGE))
    summary = f"{kind}: {small >> 20} MB for {SMALL:,} rows, {large >> 20} MB for {LARGE:,}"
    # Memory holds a bounded part of the rows; with so few rows, not even that much.
    assert large < 2 * small, summary
    return summary


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_drivers_memory_does_not_grow_with_the_output(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = compare(tmp_path, kind)
    with capsys.disabled():
        print(f"\n  {summary}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_key_with_a_row_more_than_a_million_stops_the_pipeline(tmp_path: Path) -> None:
    done = run(tmp_path, "crowd", LARGE + 1)
    assert done.returncode == 1
    assert "CrowdedKey: Step 'out' has 1,000,001 rows of left with k = 1" in done.stderr
