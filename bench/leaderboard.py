"""The top 100 of a million players, when 1,000 of them get points.

`update`: milliseconds from the commit of an update until the board shows it, with that many
existing players, against `bench/baselines/board.py`, which sorts all of them. `update_few` is the
same with few players, and `update_growth` the cost with many players against few: about 1 if it
does not depend on their number. `stored` is the time to store the view, without Spark, and
`stored_growth` its growth. `changes` is the number of changes published per update, against the 100
rows of the board.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import board as by_hand
from bench.measure import Progress, cost, report
from headrace.application.run import Run
from headrace.clock import SystemClock
from headrace.log import open_log
from headrace.runtime.session import spark_session

SCHEMA = "player string, won bigint, at timestamp"
TOPIC, VIEW = "points", "board"
FIRST = 100
CHANGED = 1_000
NEAR = 10
"""The number of these that are in the top 200."""
COMMIT_ROWS = 100_000
NOON = 1_767_225_600_000_000

_numbers = itertools.count()


@dataclass(frozen=True)
class Measured:
    """The median milliseconds of an update and of its storing, and the changes published."""

    update: float
    stored: float
    changes: float


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few players, as a smoke test."""
    many, few, updates = (20_000, 2_000, 3) if quick else (1_000_000, 10_000, 10)
    settings = {
        "players": many,
        "few_players": few,
        "board": FIRST,
        "changed_players": min(CHANGED, few),
        "updates": updates,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        spark = spark_session(log_file=home / "spark.log")
        found: dict[tuple[str, int], Measured] = {}
        boards: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for players in (few, many):
            for side, measure in (("ours", _ours), ("by hand", _theirs)):
                progress(f"{side}, {players:,} players")
                measured, top = measure(spark, home, players, updates)
                found[side, players], boards[side, players] = measured, top
            assert boards["ours", players] == boards["by hand", players], "the boards differ"
    ours, theirs = found["ours", many], found["by hand", many]
    small, small_theirs = found["ours", few], found["by hand", few]
    with_few = f"with {few:,} players"
    results = [
        cost("update", "ms", ours.update, by_hand.NAME, theirs.update),
        cost("update_few", "ms", small.update, by_hand.NAME, small_theirs.update),
        cost("update_growth", "ms", ours.update, with_few, small.update),
        cost("stored_growth", "ms", ours.stored, with_few, small.stored),
        cost("changes", "rows", ours.changes, "the whole board", float(FIRST)),
    ]
    return report("leaderboard", settings, results)


def _ours(
    spark: SparkSession, home: Path, players: int, updates: int
) -> tuple[Measured, list[tuple[str, int]]]:
    url = _new_log(home, players)
    app = hr.App("game")
    points = app.topic(TOPIC, schema=SCHEMA, key="player", event_time="at")
    totals = hr.aggregate(
        points,
        by="player",
        window=hr.running(hr.FOREVER),
        lateness=hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(0)),
        score=hr.sum("won"),
    )
    app.view(VIEW, hr.top(totals, FIRST, by="score"))
    marks: dict[str, float] = {}
    storing: list[float] = []

    def crash_point(point: str) -> None:
        marks[point] = time.perf_counter()
        if point == "before commit":
            storing.append((marks[point] - marks["set aside"]) * 1_000)

    with Run(app, url, spark=spark, crash_point=crash_point) as running:
        _wait(running)
        storing.clear()
        changes = f"game.{VIEW}.changes"
        before = running.log.topic(changes).records
        times = _update(url, players, updates, lambda: _wait(running))
        published = running.log.topic(changes).records - before
    with hr.open_views(url, app="game") as views:
        found = [(row["player"], row["score"]) for row in views.rows(VIEW)]
    return Measured(_median(times), _median(storing), published / updates), found


def _theirs(
    spark: SparkSession, home: Path, players: int, updates: int
) -> tuple[Measured, list[tuple[str, int]]]:
    url, folder = _new_log(home, players), home / f"by-hand-{next(_numbers)}"
    query = by_hand.start(spark, url, TOPIC, folder, FIRST)
    try:
        query.processAllAvailable()
        times = _update(url, players, updates, query.processAllAvailable)
    finally:
        query.stop()
    return Measured(_median(times), 0.0, 0.0), by_hand.board(folder)


def _wait(running: Run) -> None:
    """Wait until it has caught up."""
    clock = SystemClock()
    while any(step.lag for step in running.progress()):
        running.wait(0)
        clock.sleep(5_000)


def _update(url: str, players: int, updates: int, wait: Callable[[], None]) -> list[float]:
    """The milliseconds of each update except the first, until `wait` returns."""
    times = []
    with open_log(url) as log, log.producer(acks="written") as producer:
        for number in range(updates + 1):
            # The same for both sides: random players, and a few on the board or near it.
            random = np.random.default_rng(number + 1)
            some = random.choice(players, min(CHANGED, players) - NEAR, replace=False)
            best = np.argsort(-_points(players), kind="stable")[: 2 * FIRST]
            some = np.union1d(some, random.choice(best, NEAR, replace=False))
            start = time.perf_counter()
            producer.append(TOPIC, _batch(some, random.integers(1, 50, len(some)), number + 1))
            wait()
            times.append((time.perf_counter() - start) * 1_000)
    return times[1:]


def _new_log(home: Path, players: int) -> str:
    """Create a log in which each player has some points."""
    url = f"file:{home / f'log-{next(_numbers)}'}"
    won = _points(players)
    with open_log(url) as log, log.producer(acks="written") as producer:
        log.create_topic(TOPIC, schema=SCHEMA, key="player", event_time="at")
        for batch in _parts(players):
            producer.append(TOPIC, _batch(batch, won[batch], 0))
    return url


def _points(players: int) -> Any:
    """The initial points of each player; high scores are rare."""
    random = np.random.default_rng(0)
    return (random.pareto(1.5, players) * 100).astype(np.int64).clip(0, 10_000_000)


def _parts(players: int) -> Iterator[Any]:
    for first in range(0, players, COMMIT_ROWS):
        yield np.arange(first, min(players, first + COMMIT_ROWS))


def _batch(players: Any, won: Any, minute: int) -> pa.RecordBatch:
    at = np.full(len(players), NOON + minute * 60_000_000, np.int64)
    return pa.record_batch(
        [
            pa.array([f"player-{n:07d}" for n in players]),
            pa.array(won, pa.int64()),
            pa.array(at).cast(pa.timestamp("us", tz="UTC")),
        ],
        names=["player", "won", "at"],
    )


def _median(times: list[float]) -> float:
    return float(np.median(times))
