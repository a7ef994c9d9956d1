"""Duplicates by keys of every type, at the end of a stream, and in `headrace doctor`."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.application.doctor import examine
from headrace.application.drain import drain
from headrace.application.preflight import preflight
from headrace.errors import ChangedPipeline, InvalidPipeline
from headrace.testing import scripted_log
from tests.property.distinct import check_distinct
from tests.spark import shuffling

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TYPES: dict[str, list[Any]] = {
    "bigint": [-(2**62), 7],
    "double": [0.5, -0.0, math.nan, math.inf],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-3.25")],
    "date": [date(1969, 12, 31), date(2026, 3, 1)],
    "timestamp": [NOON, NOON + timedelta(microseconds=1)],
    "boolean": [True, False],
    "binary": [b"", b"\x00\xff"],
    "string": ["", "é", "'\"`"],
}


def declare(kind: str, **more: Any) -> tuple[hr.App, hr.Deduplicated]:
    app = hr.App("typed")
    rows = app.topic("rows", schema=f"k {kind}, n int, at timestamp", event_time="at")
    given: dict[str, Any] = {"by": "k", "ttl": 10 * MINUTE, "delay": MINUTE, **more}
    step = hr.deduplicate(rows, **given)
    app.publish("once", step)
    app.publish("late", step.late)
    return app, step


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_of_any_type_is_known_again_in_a_later_round(kind: str) -> None:
    app, _ = declare(kind)
    values = [*TYPES[kind], None]
    rows = app.topics["rows"]
    with scripted_log(start=NOON + 60 * MINUTE) as log:
        log.log.ensure_topic(rows)
        for n in range(3):
            log.write("rows", *({"k": k, "n": n, "at": NOON + n * MINUTE} for k in values))
        results = log.run(app, spark=shuffling(2), max_commits=1)
        published = results.topic("once")
    assert len([row for row in published if row["n"] == 0]) == len(values)
    assert [row["k"] for row in published if row["n"] > 0] == [None, None]
    assert results.law("once").duplicates == 2 * (len(values) - 1)


def test_the_end_of_a_stream_tells_of_the_last_that_wait() -> None:
    app, step = declare("string", keep="last")
    with scripted_log(start=NOON + 60 * MINUTE) as log:
        log.log.ensure_topic(app.topics["rows"])
        log.write("rows", *({"k": k, "n": 0, "at": NOON} for k in "ab"))
        log.write("rows", {"k": "a", "n": 1, "at": NOON + MINUTE})
        results = log.run(app, spark=shuffling(2))
        assert results.topic("once") == []
        assert results.law("once").waiting == 2
        assert examine(app, log.log).steps[0].law.waiting == 2

        drain(app, log.log, spark=shuffling(2))
        results = log.run(app, spark=shuffling(2))
        check_distinct("once", step, results, late="late")
        assert [(row["k"], row["n"]) for row in results.topic("once")] == [("a", 1), ("b", 0)]
        checkup, ready = examine(app, log.log), preflight(app, log.log)
        assert [found.step for found in checkup.steps] == ["once"]
        assert [found.status for found in ready.steps] == ["unchanged"]
        other, _ = declare("string", keep="first")
        with pytest.raises(ChangedPipeline, match="rule for duplicates was the last within 10m"):
            log.run(other, spark=shuffling(2))


def test_a_list_is_nothing_to_tell_duplicates_by() -> None:
    app, _ = declare("array<string>")
    with (
        scripted_log() as log,
        pytest.raises(InvalidPipeline, match="Duplicates cannot be found by") as refused,
    ):
        log.run(app, spark=shuffling(2))
    assert "test_dedup.py" in str(refused.value)
