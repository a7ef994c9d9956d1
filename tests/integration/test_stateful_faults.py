"""Python state on Spark when the function or the rows are faulty."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.doctor import examine
from headrace.application.preflight import preflight
from headrace.errors import ChangedPipeline, CrowdedKey, InvalidPipeline, PipelineError
from headrace.operators.stateful import spark as stateful_spark
from headrace.testing import ScriptedLog, scripted_log
from tests.property import folds
from tests.spark import shuffling

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def careful(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    for n in events["n"].to_pylist():
        if n == 13:
            raise ValueError(f"{n} is not allowed")
    return folds.totals(state, events)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        yield log


def declare(function: Any = careful, **other: Any) -> tuple[hr.App, Any]:
    app = hr.App("app")
    events = app.topic("events", schema="k string, n int, at timestamp", event_time="at")
    choices = {"delay": SECOND, "ttl": 600 * SECOND, "buckets": 2, **other}
    step = hr.stateful(
        events, function, by="k", state=folds.TOTALS_STATE, output=folds.TOTALS, **choices
    )
    app.publish("out", step)
    app.publish("late", step.late)
    return app, events


def write(log: ScriptedLog, events: Any, *rows: tuple[str | None, int], second: int = 0) -> None:
    moment = NOW - 600 * SECOND + second * SECOND
    log.write(events, *({"k": k, "n": n, "at": moment} for k, n in rows))


def run(log: ScriptedLog, app: hr.App) -> Any:
    return log.run(app, spark=shuffling(2), max_commits=1)


def test_a_function_that_raises_stops_and_names_the_line_and_the_row(log: ScriptedLog) -> None:
    app, events = declare()
    write(log, events, ("a", 1))
    write(log, events, ("b", 2), ("c", 13), second=10)
    write(log, events, ("z", 0), second=20)
    with pytest.raises(PipelineError) as stopped:
        run(log, app)
    line = inspect.getsourcelines(careful)[1] + 3
    for words in (f"test_stateful_faults.py:{line}", "13 is not allowed", "'k': 'c'", "offset 2"):
        assert words in str(stopped.value), words
    # It stopped before that batch, and continues from there with a fixed function.
    assert [row["n"] for row in log_topic(log, "out")] == [1]
    with pytest.raises(ChangedPipeline, match="function"):
        run(log, declare(folds.totals)[0])
    results = run(log, declare(on_error="dead letter")[0])
    assert sorted(row["n"] for row in results.topic("out")) == [1, 2]


def log_topic(log: ScriptedLog, topic: str) -> list[Any]:
    return [record.value for record in log.records(topic)]


def test_rows_that_a_function_fails_for_are_dead_letters_with_their_place(log: ScriptedLog) -> None:
    app, events = declare(on_error="dead letter")
    write(log, events, ("a", 1), ("c", 5), (None, 1))
    write(log, events, ("a", 2), ("c", 13), (None, 13), second=10)
    write(log, events, ("a", 3), ("c", 6), second=20)
    write(log, events, ("z", 0), second=60)
    results = run(log, app)
    (one, other) = sorted(results.topic("app.dead"), key=lambda row: int(row["offset"]))
    assert (one["step"], one["topic"], one["partition"], one["offset"]) == ("out", "events", 0, 4)
    assert one["commit_number"] == 2
    assert "ValueError: 13 is not allowed at " in one["reason"]
    assert '"k": "c", "n": 13' in one["row"]
    assert '"k": null' in other["row"]
    totals = {(row["k"], row["total"]) for row in results.topic("out")}
    assert totals == {("a", 1), ("a", 3), ("a", 6), ("c", 5), ("c", 11), (None, 1)}
    law = results.law("out")
    assert (law.rows, law.dead, law.counted) == (9, 2, 7)


def ringing(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    if not len(events) and "c" in state["k"].to_pylist():
        raise ValueError("not now")
    return folds.visits(state, events)


def test_a_timer_that_a_function_fails_for_is_told_of(log: ScriptedLog) -> None:
    app = hr.App("app")
    events = app.topic("events", schema="k string, n int, at timestamp", event_time="at")
    step = hr.stateful(
        events, ringing, by="k", state=folds.VISITS_STATE, output=folds.VISITS,
        delay=SECOND, ttl=600 * SECOND, on_error="dead letter",
    )  # fmt: skip
    app.publish("out", step)
    write(log, events, ("a", 1), ("c", 1))
    write(log, events, ("z", 1), second=60)
    results = run(log, app)
    assert [row["k"] for row in results.topic("out")] == ["a"]
    (letter,) = results.topic("app.dead")
    assert letter["reason"].startswith("its timer: ValueError: not now at ")
    assert (letter["offset"], letter["appended"]) == (None, NOW - 570 * SECOND)
    assert results.law("out").dead == 0


def test_a_bucket_that_grows_too_large_stops_and_says_what_to_do(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateful_spark, "MOST_BYTES", 10_000)
    app, events = declare(folds.totals, order="arrival")
    write(log, events, *((f"key {n}", n) for n in range(20)))
    write(log, events, *((f"key {n}", n) for n in range(1_000)), second=1)
    with pytest.raises(PipelineError, match="of state in bucket") as stopped:
        run(log, app)
    assert "more buckets" in stopped.value.hint
    assert len(log_topic(log, "out")) == 20


def test_a_key_with_too_many_rows_that_wait_is_named(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateful_spark, "MOST_BYTES", 10_000)
    app, events = declare(folds.totals)
    write(log, events, *((f"key {n}", n) for n in range(20)), *(("hot", n) for n in range(1_000)))
    with pytest.raises(CrowdedKey, match="1,000 of them have one key, k = 'hot'") as stopped:
        run(log, app)
    assert "filter it out" in stopped.value.hint
    assert not log_topic(log, "out")


def test_a_key_that_cannot_be_one_is_refused(log: ScriptedLog) -> None:
    app = hr.App("app")
    events = app.topic("events", schema="k array<string>, at timestamp", event_time="at")
    choices: Any = {"state": "rows bigint", "output": "rows bigint"}
    app.publish(
        "out",
        hr.stateful(events, folds.totals, by="k", delay=SECOND, ttl=SECOND, **choices),
    )
    with pytest.raises(InvalidPipeline, match="cannot be kept by 'k'"):
        run(log, app)


def test_a_changed_function_is_told_before_it_runs_and_the_doctor_looks_at_it(
    log: ScriptedLog,
) -> None:
    app, events = declare(folds.totals)
    write(log, events, ("a", 1))
    write(log, events, ("a", 2), second=10)
    run(log, app)
    assert preflight(app, log.log).ok
    checked = preflight(declare(careful)[0], log.log)
    assert not checked.ok
    assert "the function was" in checked.steps[0].changes[0]
    found = examine(app, log.log)
    assert found.steps[0].law.counted == 2


def test_rows_wait_for_time_alone_to_go_on(log: ScriptedLog) -> None:
    app, events = declare(folds.totals)
    write(log, events, ("a", 1))
    assert run(log, app).topic("out") == []
    log.log.advance("events", NOW - 590 * SECOND)
    assert [row["total"] for row in run(log, app).topic("out")] == [1]


def test_state_goes_on_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    app, events = declare()
    with scripted_log(tmp_path / "before", start=NOW) as log:
        write(log, events, ("a", 1))
        write(log, events, ("z", 0), second=20)
        run(log, app)
    (tmp_path / "before").rename(tmp_path / "moved to")
    with scripted_log(tmp_path / "moved to", start=NOW) as log:
        write(log, events, ("a", 2), second=20)
        write(log, events, ("z", 0), second=40)
        totals = [row["total"] for row in run(log, app).topic("out") if row["k"] == "a"]
        assert totals == [1, 3]
