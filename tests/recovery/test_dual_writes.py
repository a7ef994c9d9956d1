"""Under the same faults, a captured store has no differences, and one with dual writes has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.capture_pictures import FOUND
from tests.waiting import left, started

SEED = 7


def compared(folder: Path, writes: int, each: int) -> dict[str, dict[str, int]]:
    """The differences of both stores, from a process that may fork."""
    words = [str(folder), str(SEED), str(writes), str(each)]
    process = started(
        subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.dual_writes", *words],
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
    )
    said, _ = process.communicate(timeout=left())
    assert process.returncode == 0
    found: dict[str, dict[str, int]] = json.loads(said)
    return found


def test_a_captured_store_has_no_difference_where_dual_writes_have(tmp_path: Path) -> None:
    found = compared(tmp_path, 120, 1)
    assert found["direct"]["different"] > 0
    assert found["captured"]["different"] == 0


@pytest.mark.slow
def test_the_differences_of_the_docs_are_those_of_a_run(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(FOUND.read_text())
    found = compared(tmp_path, told.pop("writes"), told.pop("each"))
    assert found == told
    assert found["captured"]["different"] == 0
