"""Findings of the doctor about pipelines that have run: lag, lateness, checkpoints, waiting."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.doctor import Checkup, StepCheckup, examine
from headrace.application.doctor.changes import MissingEvents
from headrace.application.doctor.checkpoints import SlowCheckpoints
from headrace.application.doctor.dead_letters import DeadLetters
from headrace.application.doctor.disorder import OutOfOrder
from headrace.application.doctor.lag import GrowingLag, Skew
from headrace.application.doctor.records import Records
from headrace.clock import SECOND as SECONDS
from headrace.clock import Clock, SystemClock, to_micros
from headrace.pipeline.stream import Source
from headrace.plan.crash_points import CrashPoint
from headrace.store.location import views_folder
from headrace.testing import Results, ScriptedLog, scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = "item string, price double, at timestamp"
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MOMENT = pa.timestamp("us", tz="UTC")


def order(seconds: float, item: str = "pen", price: float | None = 1.5) -> dict[str, Any]:
    return {"item": item, "price": price, "at": NOON + timedelta(seconds=seconds)}


def counted(app: hr.App, name: str, stream: hr.Stream, delay: int, grace: int, **more: Any) -> None:
    """A view that counts a stream by item and minute."""
    lateness = hr.Lateness(delay * SECOND, grace * SECOND)
    made = hr.aggregate(
        stream, by="item", window=hr.tumbling(MINUTE), lateness=lateness, n=hr.count(), **more
    )
    app.view(name, made)


# An application with several steps, each with a different finding


@pytest.fixture(scope="module")
def ward() -> Iterator[tuple[ScriptedLog, hr.App, Results]]:
    app = hr.App("ward")
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        shuffled = app.topic("shuffled", schema=SCHEMA, event_time="at")
        renamed = app.topic("renamed", schema=SCHEMA, event_time="at")
        quiet = app.topic("quiet", schema=SCHEMA, event_time="at")
        counted(app, "hasty", shuffled, 5, 20)
        counted(app, "patient", shuffled, 120, 0)
        counted(app, "dear", hr.filter(renamed, "price > 1"), 0, 30, emit="final")
        counted(app, "nothing", hr.filter(renamed, "price > 1000"), 0, 0)
        counted(app, "both", hr.merge(renamed, quiet), 0, 0)
        undated = app.topic("undated", schema=SCHEMA, event_time="at")
        counted(app, "undated", undated, 0, 0)
        _shuffle(log, shuffled)
        _rename(log, renamed)
        log.write(quiet, order(30.5))
        log.write(undated, order(0.5), *[order(1.5) | {"at": None}] * 2)
        results = log.run(app, spark=shared())
        log.write(shuffled, order(600.5), order(601.5))
        yield log, app, results


def _shuffle(log: ScriptedLog, topic: Source) -> None:
    """Write commits, every fifth with an event from more than a minute before."""
    for n in range(40):
        log.write(topic, order(n * 10 + (0.25 - 90 if n % 5 == 4 else 0.5)))


def _rename(log: ScriptedLog, topic: Source) -> None:
    log.write(topic, *(order(n + 0.5) for n in range(30)))
    log.log.alter_topic("renamed", schema=f"{SCHEMA}, amount double")
    later = [order(30.5 + n, price=None) | {"amount": 2.5} for n in range(45)]
    log.write(topic, *later)


@pytest.fixture(scope="module")
def checkup(ward: tuple[ScriptedLog, hr.App, Results]) -> Checkup:
    log, app, _ = ward
    return examine(app, log.log)


def step_of(checkup: Checkup, name: str) -> StepCheckup:
    return next(step for step in checkup.steps if step.step == name)


def test_only_what_is_wrong_is_found(checkup: Checkup) -> None:
    found = sorted((finding.subject, finding.name) for finding in checkup.findings)
    assert found == [
        ("dear", "events missing after a schema change"),
        ("hasty", "out-of-order results"),
        ("nothing", "events missing after a schema change"),
        ("undated", "dead letters"),
    ]


def test_rows_that_come_later_than_the_delay_put_results_out_of_order(
    checkup: Checkup, ward: tuple[ScriptedLog, hr.App, Results]
) -> None:
    found = checkup.finding("out-of-order results")
    assert isinstance(found, OutOfOrder)
    # The doctor's numbers from the log are those of the pipeline.
    assert found.late == ward[2].law("hasty").late > 0
    assert found.amending > 0
    assert found.suggestion.delay >= found.most > found.delay
    assert ward[2].law("patient").late == 0  # the near miss: the same rows, and a sufficient delay


def test_many_dead_letters_are_found_with_their_reason_and_their_topic(checkup: Checkup) -> None:
    found = checkup.finding("dead letters")
    assert isinstance(found, DeadLetters)
    assert found.what == "2 rows of 3 (67%) could not be counted"
    assert found.evidence == ("no event time: 2 rows of the newest in ward.dead",)
    assert "headrace consume ward.dead" in found.remedy


def test_rows_that_a_filter_drops_since_a_column_is_null_are_missing(
    checkup: Checkup, ward: tuple[ScriptedLog, hr.App, Results]
) -> None:
    found = checkup.finding("events missing after a schema change")
    assert isinstance(found, MissingEvents)
    assert (found.subject, found.column, found.instead) == ("dear", "price", "amount")
    assert found.lost == ward[2].law("dear").filtered == 45
    assert "45 rows since then were filtered or dead" in found.evidence


def test_a_step_says_what_it_holds_and_until_when(checkup: Checkup) -> None:
    held = step_of(checkup, "patient").held
    # The frontier is 12:06:20.5, and the delay two minutes.
    assert (held.panes, held.rows) == (3, 14)
    assert held.oldest == held.fires
    assert held.oldest is not None
    assert held.closes == held.oldest + 120_000_000
    assert held.table_bytes > 0
    assert held.state_bytes > 0


def test_a_window_waits_for_event_time_that_is_missing(checkup: Checkup) -> None:
    (behind, wait) = step_of(checkup, "patient").waits
    assert behind.name == "not running"
    assert behind.text == "it is not running; backlog: 2 rows in 1 commit"
    assert wait.name == "watermark before the window's end"
    assert wait.text.startswith("the window that ends at 2026-01-31 12:05:00Z has not fired")
    assert "40 s of event time missing, the newest event is at 2026-01-31 12:06:20Z" in wait.text


def test_a_final_result_waits_for_its_grace(checkup: Checkup) -> None:
    step = step_of(checkup, "dear")
    assert step.output == 0
    (wait,) = step.waits
    assert wait.name == "grace not over"
    assert (
        "is not final, because its grace period of 30 s is not over: 16 s of event time"
        in wait.text
    )


def test_rows_that_were_all_filtered_are_told(checkup: Checkup) -> None:
    (wait,) = step_of(checkup, "nothing").waits
    assert wait.text == "none of 75 rows was counted: 75 filtered"
    assert "no row has passed" in wait.remedy


def test_a_topic_that_holds_event_time_back_is_named(checkup: Checkup) -> None:
    waits = {wait.name: wait.text for wait in step_of(checkup, "both").waits}
    assert waits["held back by a topic"].startswith(
        "topic quiet is at 2026-01-31 12:00:30Z and holds back event time by 44 s"
    )


# Lag


def fed(log: ScriptedLog, app: hr.App, topic: Source, items: list[str], batches: int) -> Checkup:
    """Run six batches of one commit each, and write another commit in the first `batches` of them.

    Returns the doctor's report during the last batch.
    """
    for n in range(6):
        log.write(topic, *(order(n + k / 100, f"item {k}") for k in range(10)))
    begun = 0
    seen: list[Checkup] = []

    def feed(point: str) -> None:
        nonlocal begun
        if point == "batch began":
            begun += 1
            if begun <= batches:
                rows = (order(9 + begun + k / 1_000, item) for k, item in enumerate(items))
                log.write(topic, *rows)
            if begun == 6:
                seen.append(examine(app, log.log))

    log.run(app, spark=shared(), max_commits=1, crash_point=feed)
    return seen[0]


@pytest.mark.slow
def test_lag_that_grows_is_told_from_a_large_one_that_shrinks() -> None:
    growing, shrinking = hr.App("growing"), hr.App("shrinking")
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        topic = growing.topic("orders", schema=SCHEMA, event_time="at")
        counted(growing, "sales", topic, 0, 0)
        running = fed(log, growing, topic, ["pen"] * 30, batches=6)
        assert running.running == os.getpid()
        assert step_of(running, "sales").waits[0].name == "behind"
        found = examine(growing, log.log).finding("lag grows")
        assert isinstance(found, GrowingLag)
        assert found.lags == (80, 100, 120, 140, 160, 180)
        assert (found.taken, found.came) == (10.0, 30.0)
        assert found.skew == Skew("key", "pen", 180 / 240)
        with Records(log.log.url, "growing") as records:
            record = records.of("sales")
            assert record is not None
            assert [(t.batch, t.rows, t.results) for t in record.timings] == [
                (n, 10, 10) for n in range(6)
            ]

        topic = shrinking.topic("others", schema=SCHEMA, event_time="at")
        counted(shrinking, "sold", topic, 0, 0)
        fed(log, shrinking, topic, [f"item {k}" for k in range(500)], batches=1)
        checkup = examine(shrinking, log.log)
        assert checkup.running is None
        assert step_of(checkup, "sold").backlog.rows == 500
        assert checkup.healthy


# Checkpoints


def held_up(database: Path, clock: Clock) -> CrashPoint:
    """Lock the database while results are stored, for longer than the rest of the batch takes.

    The first batch is exempt: it may have to wait for Spark.
    """
    began = batches = 0
    holders: list[threading.Thread] = []

    def crash_point(point: str) -> None:
        nonlocal began, batches
        if point == "batch began":
            began, batches = clock.monotonic(), batches + 1
        if point != "set aside" or batches == 1:
            return
        other = apsw.Connection(str(database))
        other.execute("BEGIN IMMEDIATE")

        def let_go(until: int = clock.monotonic() - began + SECONDS) -> None:
            clock.sleep(until)
            other.execute("ROLLBACK")
            other.close()

        holders.append(threading.Thread(target=let_go))
        holders[-1].start()

    return crash_point


@pytest.mark.slow
def test_slow_checkpoints_are_told_from_batches_with_many_rows() -> None:
    slow, large = hr.App("slow"), hr.App("large")
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        topic = slow.topic("few", schema=SCHEMA, event_time="at")
        counted(slow, "sales", topic, 0, 0)
        for n in range(4):
            log.write(topic, order(n + 0.5))
        database = views_folder(log.log.url) / "slow.db"
        log.run(slow, spark=shared(), max_commits=1, crash_point=held_up(database, SystemClock()))
        found = examine(slow, log.log).finding("slow checkpoints")
        assert isinstance(found, SlowCheckpoints)
        assert (found.batches, found.rows, found.results) == (4, 1, 1)
        assert found.stored > found.state + found.files
        assert "another process locks the database" in found.remedy

        topic = large.topic("many", schema=SCHEMA, event_time="at")
        counted(large, "sold", topic, 0, 0)
        log.log.ensure_topic(topic.topic)
        rows = 200_000
        for n in range(3):
            moments = pa.array(np.arange(rows) + n * rows + to_micros(NOON)).cast(MOMENT)
            items = pa.array([f"item {k}" for k in range(1_000)] * (rows // 1_000))
            with log.log.producer() as producer:
                data = {"item": items, "price": np.ones(rows), "at": moments}
                producer.append("many", pa.table(data))
        log.run(large, spark=shared(), max_commits=1)
        assert examine(large, log.log).healthy


@pytest.mark.slow
def test_rows_that_are_in_many_windows_make_checkpoints_slow() -> None:
    app = hr.App("wide")
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        topic = app.topic("orders", schema=SCHEMA, event_time="at")
        made = hr.aggregate(
            topic,
            by="item",
            window=hr.hopping(MINUTE, SECOND),
            lateness=hr.Lateness(timedelta(0), timedelta(0)),
            n=hr.count(),
        )
        app.view("sales", made)
        app.publish("updates", made)
        for n in range(4):
            log.write(topic, *(order(n + 0.5, f"item {k}") for k in range(2_000)))
        log.run(app, spark=shared(), max_commits=1)
        found = examine(app, log.log).finding("slow checkpoints")
        assert isinstance(found, SlowCheckpoints)
        assert (found.rows, found.results) == (2_000, 120_000)
        assert found.remedy.startswith("Each row is in many windows")
