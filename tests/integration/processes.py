"""Other processes and small filesystems, for tests of faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
from headrace.log import Log
from tests.waiting import left, started

ROOT = os.geteuid() == 0


def values(log: Log) -> list[bytes]:
    return [r.value for batch in log.read("clicks") for r in batch.records()]


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process that runs the script."""
    return started(
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # With the same headrace as here, installed or not.
            env={**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parents[1])},
            process_group=0,
        )
    )


def answer(process: subprocess.Popen[str], said: str = "") -> Any:
    """The script's output, parsed as JSON."""
    out, err = process.communicate(said, timeout=left())
    assert process.returncode == 0, err
    return json.loads(out)


def mounted(folder: Path, size: str) -> bool:
    """True if the folder is now a mounted filesystem of that size."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return (
        ROOT
        and subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0
    )
