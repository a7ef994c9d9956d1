"""The wait for an answer: from a command to its first count, against a bare Spark session.

`run` is `headrace run --until-caught-up` of the page-view pipeline over one row, until it exits.
`demo` is `headrace demo --once`, until its view has the first count. `show` is `headrace show` of
the same row. Each is a process of its own. The baseline is a Python program with the same query on
a bare Spark session, with the same settings and class archive, until it exits; for `demo` it reads
as many rows. The first and the second compile little by themselves (`--brief`), because there are
few rows.

`run_before` and `demo_before` compare with an older version: the commit in `BEFORE`, checked out
and set up beside the benchmark. `--quick`, and a copy without that commit, leave them out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.baselines import bare_session
from bench.baselines.bare_session import SCHEMA
from bench.measure import Progress, Result, best_of, cost, report

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "d894460"
EVENTS = 200_000
PIPELINE = ROOT / "pipelines" / "pageviews.py"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` measures once, as a smoke test."""
    rounds = 1 if quick else 3
    ours = Path(sys.executable).with_name("headrace")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        with contextlib.nullcontext() if quick else _before(home, progress) as older:
            sides: dict[str, Callable[[], float]] = {
                "run": lambda: _run(ours, home),
                "demo": lambda: _demo(ours, home),
                "show": lambda: _show(ours, home),
                "bare": lambda: _bare(home, 1),
                "bare_demo": lambda: _bare(home, EVENTS),
            }
            if older is not None:
                sides["run_before"] = lambda: _run(older, home)
                sides["demo_before"] = lambda: _demo(older, home)
            # Not measured: the first start of a program reads its files from the disk.
            progress("warming up")
            for side in sides.values():
                side()
            progress(f"measuring, {rounds} of each in turn")
            spent = dict(zip(sides, best_of(rounds, *sides.values()), strict=True))
    results = [
        _against(spent, "run", "bare", bare_session.NAME),
        _against(spent, "demo", "bare_demo", f"{bare_session.NAME}, as many rows"),
        _against(spent, "show", "bare", bare_session.NAME),
    ]
    if older is not None:
        results += [
            _against(spent, name, f"{name}_before", f"commit {BEFORE}", f"{name}_before")
            for name in ("run", "demo")
        ]
    settings = {"rounds": rounds, "demo_events": EVENTS, "cores": os.cpu_count()}
    return report("start", settings, results)


def _against(
    spent: dict[str, float], ours: str, theirs: str, baseline: str, name: str = ""
) -> Result:
    return cost(name or ours, "s", spent[ours], baseline, spent[theirs])


def _run(headrace: Path, home: Path) -> float:
    """Run the pipeline over a log with one row."""
    url = _log_of_one_row(headrace, home)
    command = [str(headrace), "run", f"{PIPELINE}:app", "--until-caught-up", "--log", url]
    return _seconds(lambda: _call(command))


def _show(headrace: Path, home: Path) -> float:
    url = _log_of_one_row(headrace, home)
    command = [str(headrace), "show", f"{PIPELINE}:app", "hits_per_minute", "--log", url]
    return _seconds(lambda: _call(command))


def _demo(headrace: Path, home: Path) -> float:
    """Run the demo, and stop the clock at the first count in its view."""
    log = _empty(home / "log")
    command = [str(headrace), "demo", "--once", "--events", str(EVENTS), "--log", f"file:{log}"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=home) as process:
        while not _has_counts(log / "views" / "pageviews.db"):
            assert process.poll() is None, "the demo ended without a count"
            time.sleep(0.02)
        spent = time.perf_counter() - began
        process.wait()
    assert process.returncode == 0, "the recount of the demo differs"
    return spent


def _has_counts(database: Path) -> bool:
    if not database.exists():
        return False
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        try:
            return bool(db.execute("SELECT 1 FROM hits_per_minute LIMIT 1").fetchone())
        except sqlite3.OperationalError:  # no such view yet
            return False


def _bare(home: Path, rows: int) -> float:
    """Count rows in the bare session."""
    folder = _empty(home / "bare")
    (folder / "rows").mkdir()
    pq.write_table(_rows(rows), folder / "rows" / "part.parquet")
    command = [sys.executable, "-m", "bench.baselines.bare_session", str(folder)]
    spent = _seconds(lambda: _call(command, cwd=ROOT))
    with contextlib.closing(sqlite3.connect(folder / "hits.db")) as db:
        (counted,) = db.execute("SELECT sum(hits) FROM hits").fetchone()
    assert counted == rows, f"the bare session counted {counted} of {rows} rows"
    return spent


def _rows(count: int) -> pa.Table:
    """Page views of twenty pages, a hundred per second."""
    times = [NOON + timedelta(milliseconds=10 * i) for i in range(count)]
    return pa.table(
        {
            "url": [f"/page/{i % 20}" for i in range(count)],
            "user": [f"user-{i % 1_000}" for i in range(count)],
            "at": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def _log_of_one_row(headrace: Path, home: Path) -> str:
    """A log that the same version has made, since an older one cannot read a newer format."""
    url = f"file:{_empty(home / 'log')}"
    created = [str(headrace), "topics", "create", "pageviews", "--log", url, "--schema", SCHEMA]
    _call([*created, "--key", "url", "--event-time", "at"])
    rows = home / "row.jsonl"
    rows.write_text('{"url": "/home", "user": "ada", "at": "2026-01-31T12:00:00Z"}\n')
    _call([str(headrace), "produce", "pageviews", "--log", url, "--file", str(rows)])
    return url


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _call(command: list[str], cwd: Path | None = None) -> None:
    # A file: a pipe would end with Java, and nobody waits for that.
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(command, stdout=said, stderr=said, check=False, cwd=cwd)
        said.seek(0)
        assert done.returncode == 0, f"{' '.join(command)}: {said.read()}"


@contextlib.contextmanager
def _before(home: Path, progress: Progress) -> Iterator[Path | None]:
    """The command of an older version; None where git does not have it."""
    place = home / "before"
    git = ["git", "-C", str(ROOT), "worktree"]
    added = subprocess.run(
        [*git, "add", "--detach", str(place), BEFORE], capture_output=True, check=False
    )
    if added.returncode:
        progress(f"commit {BEFORE} is not here, so there is no comparison with it")
        yield None
        return
    try:
        progress(f"setting up commit {BEFORE}")
        _call(["make", "-C", str(place), "setup"])
        yield place / ".venv/bin/headrace"
    finally:
        subprocess.run([*git, "remove", "--force", str(place)], capture_output=True, check=False)
