"""kill -9 of a process that loads files, at every step of a commit."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from headrace.backfill import reading
from headrace.log import open_log
from tests.recovery.backfilling import CHUNK, load, load_and_die
from tests.recovery.crashing import KillAt
from tests.waiting import left

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.recovery.backfilling"])

ROWS = 3 * CHUNK + 3


def _files(folder: Path) -> Path:
    """A file of each format, with the numbers from 0 on."""
    folder.mkdir()
    numbers = [pa.table({"n": range(k * ROWS, (k + 1) * ROWS)}) for k in range(3)]
    pq.write_table(numbers[0], folder / "0.parquet", row_group_size=7)
    pa_csv.write_csv(numbers[1], folder / "1.csv")
    lines = "".join(f'{{"n": {n}}}\n' for n in numbers[2]["n"].to_pylist())
    (folder / "2.jsonl").write_text(lines)
    return folder


def _kill(folder: Path, files: Path, kill_at: KillAt) -> bool:
    """Load until a step is reached for the so manieth time; false if it ended before."""
    process = _context.Process(target=load_and_die, args=(folder, files, kill_at))
    process.start()
    process.join(timeout=left())
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def test_every_row_of_a_file_is_in_the_log_once_whenever_its_load_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, files = tmp_path / "log", _files(tmp_path / "files")
    with open_log(f"file:{folder}") as log:
        log.create_topic("rows", schema="n bigint", partitions=2)
    steps = ("writing", "recorded", "before commit", "committed")
    killed = [_kill(folder, files, KillAt(step, 3 + n)) for n, step in enumerate(steps)]
    assert sum(killed) >= 3  # the last one may find nothing left to do
    monkeypatch.setattr(reading, "CHUNK_ROWS", CHUNK)
    with open_log(f"file:{folder}") as log:
        found = load(log, "rows", str(files))
        stored = [n for batch in log.read("rows") for n in batch.data["n"].to_pylist()]
        assert sorted(stored) == list(range(3 * ROWS))
        assert sum(loaded.already + loaded.records for loaded in found) == 3 * ROWS
        assert any(loaded.already for loaded in found)
