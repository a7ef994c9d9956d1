"""Sliding windows and sessions: supported aggregates and inputs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.operators.window.windows import AnyWindow
from headrace.pipeline.stream import Source
from headrace.testing import ScriptedLog, scripted_log
from tests.property.judging import check_view
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "k string, price decimal(10,2), seen timestamp, ok boolean, at timestamp"
LATENESS = hr.Lateness(10 * SECOND, 60 * SECOND)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        yield log


def row(second: int, price: str | None, key: str = "a") -> dict[str, Any]:
    at = NOON + second * SECOND
    return {"k": key, "price": price, "seen": at, "ok": second % 2 == 0, "at": at}


def declare(window: AnyWindow, **aggregates: Any) -> tuple[hr.App, Source, hr.Aggregation]:
    app = hr.App("own")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    made = hr.aggregate(source, by="k", window=window, lateness=LATENESS, **aggregates)
    app.view("own", made)
    return app, source, made


def test_sessions_put_together_values_of_every_type(log: ScriptedLog) -> None:
    app, source, _ = declare(
        hr.session(10 * SECOND),
        prices=hr.distinct("price"),
        times=hr.distinct("seen"),
        middle=hr.quantile("price", 0.5),
        mean=hr.average("price"),
        total=hr.sum("price"),
        dear=hr.max("price"),
        last_seen=hr.last("seen"),
        right=hr.first("ok"),
        about=hr.approx_distinct("seen"),
    )
    log.write(source, row(0, "1.50"), row(5, "2.50"), row(60, None))
    log.run(app, spark=shared())
    log.write(source, row(20, "2.50"), row(20, "10.00"))
    results = log.run(app, spark=shared())
    assert len(results.view("own")) == 3
    # A row that merges two sessions, whose parts are already stored.
    log.write(source, row(12, "1.50"))
    results = log.run(app, spark=shared())
    first, second = sorted(results.view("own"), key=lambda found: found["window_start"])
    assert first["window_end"] == "2026-01-01 12:00:30"
    assert (first["prices"], first["times"]) == (3, 4)
    assert Decimal(first["middle"]) == Decimal("2.50")
    assert Decimal(first["total"]) == Decimal("18.00")
    assert Decimal(first["mean"]) == Decimal("3.6")
    assert first["last_seen"] == "2026-01-01 12:00:20"
    assert first["right"] == 1
    assert (second["prices"], second["middle"], second["mean"]) == (0, None, None)
    assert results.law("own").counted == 6


@pytest.mark.parametrize(
    ("window", "expression", "reason"),
    [
        (hr.session(10 * SECOND), "stddev(price)", "when two sessions merge"),
        (hr.sliding(10 * SECOND), "sum(price) / count(k)", "Spark cannot do this"),
    ],
)
def test_what_cannot_be_put_together_is_refused_at_its_line(
    log: ScriptedLog, window: AnyWindow, expression: str, reason: str
) -> None:
    app, source, _ = declare(window, odd=hr.expression(expression))
    log.write(source, row(0, "1.00"))
    with pytest.raises(InvalidPipeline, match=reason) as refused:
        log.run(app, spark=shared())
    assert "test_own_windows.py" in str(refused.value)


def test_the_commonest_values_of_a_session_are_refused_at_their_line(log: ScriptedLog) -> None:
    app, source, _ = declare(hr.session(10 * SECOND), common=hr.approx_top("k", 3))
    log.write(source, row(0, "1.00"))
    with pytest.raises(InvalidPipeline, match="when two sessions merge") as refused:
        log.run(app, spark=shared())
    assert "test_own_windows.py" in str(refused.value)


def test_an_arbitrary_aggregate_slides(log: ScriptedLog) -> None:
    app, source, _ = declare(hr.sliding(10 * SECOND), most=hr.expression("max_by(k, price)"))
    log.write(source, row(0, "3.00"), row(4, "1.00"))
    results = log.run(app, spark=shared())
    assert [found["most"] for found in results.view("own")] == ["a", "a"]


def test_what_is_kept_forever_is_never_late_and_never_final(log: ScriptedLog) -> None:
    app, source, step = declare(hr.running(hr.FOREVER), total=hr.sum("price"), n=hr.count())
    log.write(source, row(3000, "1.00"), row(3000, "1.00", "b"))
    log.run(app, spark=shared())
    log.write(source, row(0, "2.00"))
    results = log.run(app, spark=shared())
    check_view("own", step, results)
    assert {(found["k"], found["n"], found["_state"]) for found in results.view("own")} == {
        ("a", 2, "open"),
        ("b", 1, "open"),
    }
    assert results.law("own").late == 0


def test_a_total_that_expires_starts_over(log: ScriptedLog) -> None:
    app, source, step = declare(hr.running(60 * SECOND), n=hr.count())
    log.write(source, row(0, None), row(30, None), row(200, None))
    results = log.run(app, spark=shared())
    check_view("own", step, results)
    assert sorted(found["n"] for found in results.view("own")) == [1, 2]
