"""Times from the year 1 to 9999 are counted, and Spark's watermark drops no row unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import FIRST_MOMENT, LAST_MOMENT, to_datetime
from headrace.errors import LawBroken, PipelineError
from headrace.runtime import checkpoint
from headrace.store import open_views
from headrace.testing import ScriptedLog, scripted_log
from tests.property.joining import check_join
from tests.property.judging import check_late, check_law, check_view
from tests.spark import shared

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = "k string, n int, at timestamp"
WINDOWS: dict[str, Any] = {
    "tumbling": hr.tumbling(60 * SECOND, offset=7 * SECOND),
    "hopping": hr.hopping(70 * SECOND, 30 * SECOND),
    "sliding": hr.sliding(50 * SECOND),
    "session": hr.session(30 * SECOND),
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ScriptedLog]:
    with scripted_log(tmp_path) as log:
        yield log


def row(at: datetime, k: str = "a") -> dict[str, Any]:
    return {"k": k, "n": 1, "at": at}


def counting(windows: dict[str, Any], **settings: str) -> tuple[hr.App, dict[str, hr.Aggregation]]:
    app = hr.App("history")
    events = app.topic("events", schema=SCHEMA, event_time="at", settings=settings)
    steps = {}
    for name, window in windows.items():
        lateness = hr.Lateness(10 * SECOND, 20 * SECOND)
        step = steps[name] = hr.aggregate(
            events, by="k", window=window, lateness=lateness, rows=hr.count()
        )
        app.view(name, step)
        app.publish(f"{name}.late", step.late)
    return app, steps


def joining() -> tuple[hr.App, hr.Join]:
    app = hr.App("history")
    left = app.topic("left", schema=SCHEMA, event_time="at")
    right = app.topic("right", schema=SCHEMA, event_time="at")
    pairs = hr.join(
        left, right, on="k", before=SECOND, after=SECOND, delay=SECOND, prefix="r_", how="full"
    )
    app.publish("pairs", pairs)
    app.publish("late", pairs.late)
    return app, pairs


def flagging() -> hr.App:
    app = hr.App("history")
    events = app.topic("events", schema=SCHEMA, event_time="at")
    step = hr.alerts(
        events, by="k", event="n", within=60 * SECOND, delay=SECOND,
        rules={"two": hr.rule("size(recent) > 1")},
    )  # fmt: skip
    app.publish("alerts", step)
    return app


def write(log: ScriptedLog, app: hr.App, *commits: tuple[str, *tuple[datetime, ...]]) -> None:
    for topic in app.topics.values():
        log.log.ensure_topic(topic)
    for topic_name, *times in commits:
        log.write(topic_name, *(row(at) for at in times))


def stored(log: ScriptedLog, app: hr.App) -> list[Any]:
    """The law's terms of each stored batch."""
    with open_views(log.log.home, app=app.name) as views:
        return list(views.query(f'SELECT * FROM "{app.name}"._headrace_law', limit=None).rows)


# Times that Spark would drop


def test_a_join_of_rows_from_before_1970_finds_its_pairs(log: ScriptedLog) -> None:
    app, pairs = joining()
    moon = datetime(1969, 7, 20, 20, 17, tzinfo=UTC)
    write(log, app, ("left", moon), ("right", moon + SECOND))
    found = check_join("pairs", pairs, log.run(app, spark=shared()), late="late")
    assert len(found.pairs) == 1


@pytest.mark.slow
def test_rows_around_1970_and_a_zero_time_count_in_every_window(log: ScriptedLog) -> None:
    app, steps = counting(WINDOWS)
    write(
        log,
        app,
        ("events", EPOCH - TICK, EPOCH, EPOCH + TICK),
        ("events", EPOCH - 61 * SECOND, EPOCH - 3 * SECOND),
        ("events", EPOCH + 5 * SECOND),
        ("events", EPOCH - 5 * SECOND, EPOCH + 200 * SECOND),
        ("events", EPOCH - TICK, EPOCH),
    )
    results = log.run(app, spark=shared(), max_commits=1)
    for name, step in steps.items():
        found = check_view(name, step, results)
        check_law(name, step, results)
        check_late(f"{name}.late", step, results)
        assert found.late


@pytest.mark.slow
@pytest.mark.parametrize("frontier", ["events", "punctuation"])
def test_the_first_and_the_last_moment_of_time_count_in_every_window(
    log: ScriptedLog, frontier: str
) -> None:
    app, steps = counting(WINDOWS, frontier=frontier, skew="none")
    first, last = to_datetime(FIRST_MOMENT), to_datetime(LAST_MOMENT)
    write(log, app, ("events", first), ("events", first + 10 * SECOND), ("events", last))
    results = log.run(app, spark=shared(), max_commits=1)
    for name, step in steps.items():
        check_law(name, step, results)
        assert results.law(name).late == 0
    shown = {name: [(r["window_start"], r["window_end"]) for r in results.view(name)]
             for name in WINDOWS}  # fmt: skip
    assert shown["tumbling"] == [
        ("0000-12-31 23:59:07", "0001-01-01 00:00:07"),
        ("0001-01-01 00:00:07", "0001-01-01 00:01:07"),
        ("9999-12-31 23:59:07", "10000-01-01 00:00:07"),
    ]
    assert shown["session"] == [
        ("0001-01-01 00:00:00", "0001-01-01 00:00:40"),
        ("9999-12-31 23:59:59.999999", "10000-01-01 00:00:29.999999"),
    ]


# Rows that Spark drops are noticed before anything is stored


DROPPING: dict[str, Callable[[], hr.App]] = {
    "tumbling": lambda: counting({"counts": hr.tumbling(SECOND)})[0],
    "hopping": lambda: counting({"counts": hr.hopping(2 * SECOND, SECOND)})[0],
    "sliding": lambda: counting({"counts": hr.sliding(SECOND)})[0],
    "join": lambda: joining()[0],
    "alerts": flagging,
}
REPEATED = {"hopping", "sliding"}
"""Kinds whose rows Spark drops in the same way as those of tumbling windows."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in REPEATED)) for kind in DROPPING],
)
def test_a_step_of_which_spark_drops_a_row_stops_before_the_batch_is_stored(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(checkpoint, "SHIFT", 1)  # Spark's watermark is then ahead of these rows
    app = DROPPING[kind]()
    for topic in app.topics:
        write(log, app, (topic, datetime(1969, 7, 20, tzinfo=UTC)))
    for _ in range(2):
        with pytest.raises(LawBroken, match=r"Spark dropped \d rows.*Nothing of this batch was"):
            log.run(app, spark=shared())
        assert stored(log, app) == []


# Checkpoints


@pytest.mark.slow
def test_a_checkpoint_without_a_shift_goes_on_without_one(
    log: ScriptedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = {name: WINDOWS[name] for name in ("tumbling", "sliding")}
    app, steps = counting(windows)
    begin = datetime(2026, 1, 1, 10, tzinfo=UTC)
    write(log, app, ("events", begin), ("events", begin + 40 * SECOND))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SHIFT", 0)
        log.run(app, spark=shared(), max_commits=1)
    for identity in tmp_path.rglob("headrace.json"):
        said = json.loads(identity.read_text())
        assert said.pop("shift") == 0
        identity.write_text(json.dumps(said))
    write(log, app, ("events", begin + 50 * SECOND), ("events", begin, begin + 99 * SECOND))
    write(log, app, ("events", begin))
    results = log.run(app, spark=shared(), max_commits=1)
    for name, step in steps.items():
        check_view(name, step, results)
        check_law(name, step, results)


def test_a_checkpoint_without_a_shift_says_how_times_before_1970_can_count(
    log: ScriptedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, steps = counting({"tumbling": WINDOWS["tumbling"]})
    write(log, app, ("events", EPOCH - 100 * SECOND))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SHIFT", 0)
        with pytest.raises(PipelineError, match="cannot count times before 1970") as stopped:
            log.run(app, spark=shared())
    assert not isinstance(stopped.value, LawBroken)
    (identity,) = tmp_path.rglob("headrace.json")
    assert f"Remove {identity.parent}" in str(stopped.value)
    shutil.rmtree(identity.parent)
    results = log.run(app, spark=shared())
    check_view("tumbling", steps["tumbling"], results)


# Times outside of Spark's types


def test_a_time_outside_of_the_years_1_to_9999_is_a_dead_letter(log: ScriptedLog) -> None:
    app, steps = counting(WINDOWS, skew="none")
    write(log, app)
    times = [FIRST_MOMENT - 1, FIRST_MOMENT, LAST_MOMENT, LAST_MOMENT + 1, 0, -(2**63), 2**63 - 1]
    at = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    keys, numbers = pa.array(["a"] * len(times)), pa.array([1] * len(times), pa.int32())
    with log.log.producer() as producer:
        producer.append("events", pa.table({"k": keys, "n": numbers, "at": at}))
    results = log.run(app, spark=shared())
    for name in steps:
        law = results.law(name)
        assert (law.rows, law.dead, law.late) == (7, 4, 0)
    letters = [row for row in results.topic("history.dead") if row["step"] == "tumbling"]
    assert [row["offset"] for row in letters] == [0, 3, 5, 6]
    assert {row["reason"] for row in letters} == {"outside of the years 1 to 9999"}
    assert log.log.frontier("events") == LAST_MOMENT
