"""The log as a Spark source, for batch jobs and for pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import headrace as hr
from headrace.application.run import Run
from headrace.plan.log_rows import spans
from headrace.plan.position import Position, beginning, next_cut, position_at
from headrace.plan.source_options import BatchLimits
from headrace.testing import ScriptedLog, scripted_log
from tests.property.judging import check_view
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        log.log.create_topic(
            "events", schema="k string, n int, at timestamp", event_time="at", partitions=2
        )
        yield log


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"k": "abc"[n % 3], "n": n, "at": NOW + n * SECOND} for n in range(start, start + count)
    ]


def test_a_topic_can_be_read_as_a_table(log: ScriptedLog) -> None:
    log.write("events", *rows(10))
    log.write("events", *rows(5, start=10))
    frame = (
        shared().read.format("headrace").option("log", log.log.url).option("topic", "events").load()
    )
    assert frame.columns == ["k", "n", "at"]
    assert sorted(row.n for row in frame.select("n").collect()) == list(range(15))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "events", "colour": "red"}, "no option 'colour'"),
        ({}, "needs the option 'topic'"),
        ({"topic": "nothing"}, "nothing"),
        ({"topic": "events", "max_rows": "few"}, "max_rows cannot be 'few'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    log: ScriptedLog, options: dict[str, str], message: str
) -> None:
    reader = shared().read.format("headrace").option("log", log.log.url).options(**options)
    with pytest.raises(PySparkException, match=message):
        reader.load().count()


def test_a_stream_by_hand_is_cut_at_whole_commits(log: ScriptedLog, tmp_path: Path) -> None:
    for start in range(0, 50, 5):
        log.write("events", *rows(5, start))
    sizes: list[int] = []
    query = (
        shared()
        .readStream.format("headrace")
        .option("log", log.log.url)
        .option("topic", "events")
        .option("max_rows", 12)
        .load()
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: sizes.append(frame.count()))
        .start()
    )
    query.awaitTermination()
    assert sizes == [15, 15, 15, 5]


def test_positions_count_rows_and_share_them_out(log: ScriptedLog) -> None:
    for start in range(0, 20, 5):
        log.write("events", *rows(5, start))
    begin = beginning(log.log, "events")
    end = position_at(log.log, "events", log.log.head())
    assert end.rows_after(begin) == 20
    assert Position.from_json(end.to_json()) == end
    assert next_cut(log.log, "events", 0, rows=7, commits=99, upto=99) == 2
    assert next_cut(log.log, "events", 0, rows=99, commits=3, upto=99) == 3
    assert next_cut(log.log, "events", 0, rows=99, commits=99, upto=1) == 1
    assert next_cut(log.log, "events", 4, rows=99, commits=99, upto=99) == 4
    large = spans(log.log, Position(0, (0, 0)), Position(1, (1_000_000, 10)), 2)
    assert [(s.partition, s.start, s.end) for s in large] == [
        (0, 0, 500_000),
        (0, 500_000, 1_000_000),
        (1, 0, 10),
    ]


def test_expressions_may_be_columns(log: ScriptedLog) -> None:
    app = hr.App("columns")
    events = app.topic(
        "events", schema="k string, n int, at timestamp", event_time="at", partitions=2
    )
    even = hr.filter(events, lambda: F.col("n") % 2 == 0)
    tagged = hr.derive(even, tag=lambda: F.upper("k"))
    app.view(
        "counts",
        hr.aggregate(
            tagged,
            by="tag",
            window=hr.tumbling(60 * SECOND),
            lateness=hr.Lateness(SECOND, SECOND),
            n=hr.count(),
            spread=hr.expression("max(n) - min(n)"),
        ),
    )
    log.write("events", *rows(12))
    results = log.run(app, spark=shared())
    assert [(r["tag"], r["n"], r["spread"]) for r in results.view("counts")] == [
        ("A", 2, 6),
        ("B", 2, 6),
        ("C", 2, 6),
    ]
    assert results.law("counts").filtered == 6


@pytest.mark.parametrize(
    ("window", "length"),
    [
        (hr.tumbling(10 * SECOND), 10),
        pytest.param(hr.hopping(20 * SECOND, 10 * SECOND), 20, marks=pytest.mark.slow),
        pytest.param(hr.sliding(10 * SECOND), 20, marks=pytest.mark.slow),
    ],
    ids=["tumbling", "hopping", "sliding"],
)
def test_windows_that_are_final_leave_sparks_state(
    log: ScriptedLog, window: hr.Window | hr.Sliding, length: int
) -> None:
    app = hr.App("evicting")
    events = app.topic(
        "events", schema="k string, n int, at timestamp", event_time="at", partitions=2
    )
    counted = hr.aggregate(
        events,
        by="k",
        window=window,
        lateness=hr.Lateness(10 * SECOND, 10 * SECOND),
        n=hr.count(),
    )
    app.view("counts", counted)
    for start in range(0, 600, 20):
        log.write("events", *rows(20, start))
    with Run(
        app,
        log.log,
        until_caught_up=True,
        spark=shared(),
        batch_limits=BatchLimits(max_commits=3),
    ) as running:
        running.wait()
        (state,) = running.queries[0].progress["stateOperators"]
    panes, open_at_most = 60 * 3, (3 * 20 + length + 20) // 10 * 3 + 6
    assert state["numRowsDroppedByWatermark"] == 0
    assert state["numRowsTotal"] <= open_at_most < panes


@pytest.mark.parametrize(
    "window", [hr.tumbling(timedelta(minutes=1)), hr.sliding(timedelta(minutes=1))]
)
def test_sparks_state_is_not_forgotten_before_a_source_has_said_so(
    log: ScriptedLog, window: hr.Window | hr.Sliding
) -> None:
    """A row from an hour before arrives after one that would have closed its window."""
    app = hr.App("said")
    source = app.topic(
        "said",
        schema="k string, at timestamp",
        event_time="at",
        settings={"frontier": "punctuation"},
    )
    lateness = hr.Lateness(timedelta(0), timedelta(0))
    step = hr.aggregate(source, by="k", window=window, lateness=lateness, n=hr.count())
    app.view("said", step)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for at in (noon, noon + timedelta(hours=1), noon, noon):
        log.write(source, {"k": "a", "at": at}, at=noon + timedelta(hours=2))
    results = log.run(app, spark=shared(), max_commits=1)
    check_view("said", step, results)
    assert results.law("said").counted == 4
    assert results.view("said")[0]["n"] == 3
