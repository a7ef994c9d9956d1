"""Spark does not sync its checkpoints: after a power cut, results are right or a step stops.

Files that headrace has synced survive. Each of the others is lost, torn, or intact.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import PipelineError
from headrace.files import sync_path
from headrace.store.location import checkpoint_of
from headrace.testing import Crash, ScriptedLog, crash_at, scripted_log
from tests.property.judging import check_view
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCHEMA = "k string, at timestamp"


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        yield log


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files of checkpoints that were synced."""
    found: set[Path] = set()

    def sync(path: Path) -> None:
        sync_path(path)
        found.add(path)

    monkeypatch.setattr("headrace.runtime.checkpoint.sync_path", sync)
    return found


def _declare() -> tuple[hr.App, hr.Aggregation]:
    app = hr.App("shop")
    sources = [app.topic(name, schema=SCHEMA, event_time="at") for name in ("left", "right")]
    counts = hr.aggregate(
        hr.merge(*sources),
        by="k",
        window=hr.tumbling(MINUTE),
        lateness=hr.Lateness(MINUTE, MINUTE),
        rows=hr.count(),
    )
    app.view("counts", counts)
    return app, counts


def _write(log: ScriptedLog, app: hr.App, topic: str, commits: int, start: int = 0) -> None:
    log.log.ensure_topic(app.topics[topic])
    for n in range(start, start + commits):
        log.write(topic, *({"k": key, "at": NOW + n * timedelta(seconds=20)} for key in "ab"))


def _cut(checkpoint: Path, synced: set[Path], choose: random.Random, *, state: bool) -> None:
    """Lose or tear unsynced files; Spark's state only with `state`."""
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        kept = path in synced or path.name == "headrace.json"
        if kept or (not state and "state" in path.relative_to(checkpoint).parts):
            continue
        fate = choose.random()
        if fate < 0.5:
            path.unlink()
        elif fate < 0.7 and state:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
def test_a_step_goes_on_where_a_power_cut_took_what_spark_notes_of_its_batches(
    log: ScriptedLog, synced: set[Path]
) -> None:
    app, counts = _declare()
    for topic in ("left", "right"):
        _write(log, app, topic, 4)
    with pytest.raises(Crash):
        log.run(app, spark=shared(), max_commits=1, crash_point=crash_at("committed", 3))
    checkpoint = checkpoint_of(log.log.url, "shop", "counts")
    assert {checkpoint / "offsets" / str(number) for number in range(3)} <= synced
    for noted in (checkpoint / "commits").iterdir():
        noted.unlink()
    _cut(checkpoint, synced, random.Random(1), state=False)
    for topic in ("left", "right"):
        _write(log, app, topic, 2, start=4)
    check_view("counts", counts, log.run(app, spark=shared(), max_commits=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_power_cut_under_a_checkpoint_never_gives_a_wrong_answer(
    log: ScriptedLog, synced: set[Path], seed: int
) -> None:
    app, counts = _declare()
    for topic in ("left", "right"):
        _write(log, app, topic, 4)
    with pytest.raises(Crash):
        log.run(app, spark=shared(), max_commits=1, crash_point=crash_at("committed", 3))
    checkpoint = checkpoint_of(log.log.url, "shop", "counts")
    _cut(checkpoint, synced, random.Random(seed), state=True)
    _write(log, app, "left", 2, start=4)
    try:
        results = log.run(app, spark=shared(), max_commits=2)
    except PipelineError as stopped:
        assert str(checkpoint) in f"{stopped.message} {stopped.hint}"
        shutil.rmtree(checkpoint)
        results = log.run(app, spark=shared())  # as the error's hint says
    check_view("counts", counts, results)


@pytest.mark.slow
def test_a_step_with_several_topics_stops_where_its_batches_are_cut_anew(log: ScriptedLog) -> None:
    app, _ = _declare()
    _write(log, app, "left", 1)
    _write(log, app, "right", 5)
    before = log.run(app, spark=shared())
    shutil.rmtree(checkpoint_of(log.log.url, "shop", "counts"))
    _write(log, app, "left", 3, start=1)
    stored = before.view("counts")
    with pytest.raises(PipelineError, match="overlaps them"):
        log.run(app, spark=shared(), max_commits=2)
    assert before.view("counts") == stored
