"""Faults around a pipeline: declarations, other applications, workers, disks and rows."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import headrace as hr
from headrace.application.run import Run
from headrace.clock import SystemClock
from headrace.errors import (
    AlreadyRunning,
    ChangedPipeline,
    DiskFull,
    ForeignCheckpoint,
    InvalidPipeline,
    PipelineError,
    PipelineFailed,
)
from headrace.store.location import app_folder
from headrace.store.sqlite.database import Database
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATENESS = hr.Lateness(MINUTE, MINUTE)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        yield log


def pipeline(
    name: str = "app", *, condition: str = "true", size: timedelta = MINUTE, **settings: Any
) -> tuple[hr.App, Any]:
    app = hr.App(name)
    source = app.topic(
        "events", schema="k string, n string, at timestamp", event_time="at", **settings
    )
    counted = hr.aggregate(
        hr.filter(source, condition),
        by="k",
        window=hr.tumbling(size),
        lateness=LATENESS,
        rows=hr.count(),
    )
    app.view("counts", counted)
    return app, source


def event(k: str, minute: float = 0, n: str = "1") -> dict[str, Any]:
    return {"k": k, "n": n, "at": NOW + minute * MINUTE}


def counts(log: ScriptedLog, app: hr.App) -> dict[str, int]:
    """The counted rows of each key, over all windows."""
    found: dict[str, int] = {}
    for row in log.run(app, spark=shared()).view("counts"):
        found[row["k"]] = found.get(row["k"], 0) + row["rows"]
    return found


def test_a_topic_that_is_not_as_declared_is_refused_at_the_users_line(log: ScriptedLog) -> None:
    log.log.create_topic("events", schema="k string, n int, at timestamp", event_time="at")
    app, _ = pipeline()
    with pytest.raises(InvalidPipeline, match="not as declared") as caught:
        log.run(app, spark=shared())
    assert Path(__file__).name in caught.value.hint


def test_what_spark_refuses_is_told_at_the_users_line(log: ScriptedLog) -> None:
    app, _ = pipeline(condition="no_such_function(n) > 1")
    with pytest.raises(InvalidPipeline, match="no_such_function") as caught:
        log.run(app, spark=shared())
    assert Path(__file__).name in caught.value.hint
    assert "hr.filter" in caught.value.hint


def test_a_second_run_of_an_application_is_refused_and_the_first_goes_on(log: ScriptedLog) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    with Run(app, log.log, spark=shared()) as first:
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
            log.run(app, spark=shared())
        log.write(source, event("b"))
        clock = SystemClock()
        while first.progress()[0].law.counted < 2:
            first.wait(0.1)
            clock.sleep(50_000)
    assert counts(log, app) == {"a": 1, "b": 1}


def test_a_checkpoint_of_something_else_is_refused(log: ScriptedLog) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    log.run(app, spark=shared())
    other, _ = pipeline("other")
    mine, theirs = (
        app_folder(log.log.url, name) / "checkpoints" / "counts" for name in ("app", "other")
    )
    shutil.copytree(mine, theirs)
    with pytest.raises(ForeignCheckpoint, match="'counts' of 'app'"):
        log.run(other, spark=shared())
    (theirs / "headrace.json").write_text("")
    with pytest.raises(ForeignCheckpoint, match="something else"):
        log.run(other, spark=shared())
    (theirs / "headrace.json").unlink()
    with pytest.raises(ForeignCheckpoint, match="something else"):
        log.run(other, spark=shared())
    shutil.rmtree(theirs)
    assert counts(log, other) == {"a": 1}


def test_a_changed_pipeline_is_not_mixed_with_what_was_stored(log: ScriptedLog) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    log.run(app, spark=shared())
    changed, _ = pipeline(size=2 * MINUTE)
    with pytest.raises(ChangedPipeline, match="the window was tumbling 1m and is tumbling 2m"):
        log.run(changed, spark=shared())
    assert counts(log, app) == {"a": 1}
    with Run(changed, log.log, until_caught_up=True, fresh=True, spark=shared()) as running:
        running.wait()
    assert counts(log, changed) == {"a": 1}
    with pytest.raises(ChangedPipeline):
        log.run(app, spark=shared())


def test_rows_that_an_expression_fails_on_stop_the_pipeline_and_are_not_lost(
    log: ScriptedLog,
) -> None:
    app, source = pipeline(condition="cast(n as int) > 0")
    log.write(source, event("a"))
    assert counts(log, app) == {"a": 1}
    log.write(source, event("b"), event("c", n="one"))
    with pytest.raises(PipelineFailed, match="CAST_INVALID_INPUT"):
        log.run(app, spark=shared())
    careful, _ = pipeline("careful", condition="try_cast(n as int) > 0")
    assert counts(log, careful) == {"a": 1, "b": 1}


def test_rows_that_retention_took_before_they_were_read_are_an_error(log: ScriptedLog) -> None:
    app, source = pipeline(settings={"retention": "1m", "segment_age": "1s"})
    log.write(source, event("a"))
    log.run(app, spark=shared())
    for minute in range(3):
        log.pass_time(10 * MINUTE)
        log.write(source, event("b", minute))
    log.log.upkeep("events")
    with pytest.raises(PipelineError, match="they are gone: retention or a user removed"):
        log.run(app, spark=shared())


def test_a_new_pipeline_begins_with_what_retention_has_left(log: ScriptedLog) -> None:
    app, source = pipeline(settings={"retention": "1m", "segment_age": "1s"})
    log.write(source, event("a"))
    log.pass_time(10 * MINUTE)
    log.write(source, event("b", 1))
    log.log.upkeep("events")
    assert counts(log, app) == {"b": 1}


def test_tombstones_and_duplicates_are_accounted_for(log: ScriptedLog) -> None:
    app = hr.App("keyed")
    source = app.topic("keyed", schema="k string, at timestamp", key="k", event_time="at")
    app.view(
        "counts",
        hr.aggregate(
            source, by="k", window=hr.tumbling(MINUTE), lateness=LATENESS, rows=hr.count()
        ),
    )
    row = {"k": "a", "at": NOW}
    log.write(source, row, row)
    with log.log.producer() as producer:
        producer.send("keyed", None, key="a")
    log.write(source, row)
    results = log.run(app, spark=shared())
    assert [(r["k"], r["rows"]) for r in results.view("counts")] == [("a", 3)]
    law = results.law("counts")
    assert (law.rows, law.tombstones, law.counted, law.dead) == (4, 1, 3, 0)


def test_event_times_beyond_what_python_can_date_are_late_or_dead_and_not_lost(
    log: ScriptedLog,
) -> None:
    app, source = pipeline(settings={"skew": "1h"})
    log.write(source, event("now"))
    far = datetime(9999, 12, 31, tzinfo=UTC)
    past = datetime(1, 1, 1, tzinfo=UTC)
    log.write(source, {"k": "x", "n": "1", "at": far}, {"k": "y", "n": "1", "at": past})
    results = log.run(app, spark=shared())
    law = results.law("counts")
    assert (law.rows, law.counted, law.late, law.dead) == (3, 1, 1, 1)
    (letter,) = results.topic("app.dead")
    assert letter["reason"] == "ahead of the clock"
    assert "9999-12-31" in letter["row"]


def test_a_full_disk_stops_the_pipeline_and_nothing_is_lost(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    log.run(app, spark=shared())
    log.write(source, *(event(f"key {n}" * 50) for n in range(2_000)))
    honest = Database._prepare

    def small(self: Database, db: apsw.Connection, name: str) -> None:
        honest(self, db, name)
        pages = db.execute("PRAGMA page_count").get
        db.execute(f"PRAGMA max_page_count={pages}")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_prepare", small)
        with pytest.raises(DiskFull, match="No space left"):
            log.run(app, spark=shared())
    assert len(counts(log, app)) == 2_001


@pytest.mark.slow
def test_killed_python_workers_are_replaced(log: ScriptedLog) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    clock = SystemClock()
    with Run(app, log.log, spark=shared()) as running:
        for number in range(1, 4):
            while running.progress()[0].law.counted < number:
                running.wait(0.1)
                clock.sleep(20_000)
            for pid in python_workers():
                os.kill(pid, signal.SIGKILL)
            log.write(source, event("a"))
        while running.progress()[0].law.counted < 4:
            running.wait(0.1)
            clock.sleep(20_000)
    assert counts(log, app) == {"a": 4}


def test_what_asks_the_log_is_a_fork(log: ScriptedLog) -> None:
    app, source = pipeline()
    log.write(source, event("a"))
    with Run(app, log.log, spark=shared()) as running:
        while running.progress()[0].law.counted < 1:
            running.wait(0.1)
        made = []
        for pid in python_workers():
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                made.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    assert any(FORKED in command for command in made)


FORKED = b"headrace.runtime.prefork.server"
"""The process that Spark's source processes are forked from."""


def python_workers() -> list[int]:
    """Spark's Python processes of this test's JVM that work on rows or read the log."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            commands[int(path.name)] = (path / "cmdline").read_bytes()
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return [
        pid
        for pid in mine
        if b"streaming_source_runner" in commands.get(pid, b"")
        or any(
            made in commands.get(parents.get(pid, 0), b"") for made in (b"pyspark.daemon", FORKED)
        )
    ]
