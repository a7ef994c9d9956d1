"""Columns that are added to a topic's declaration after results were stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import headrace as hr
from headrace.errors import ChangedPipeline
from headrace.testing import scripted_log
from tests.spark import shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def counting(schema: str, condition: str = "k <> ''") -> hr.App:
    app = hr.App("shop")
    source = app.topic("events", schema=schema, event_time="at")
    counted = hr.aggregate(
        hr.filter(source, condition),
        by="k",
        window=hr.tumbling(MINUTE),
        lateness=hr.Lateness(MINUTE, MINUTE),
        rows=hr.count(),
    )
    app.view("counts", counted)
    return app


def test_results_and_state_go_on_after_a_column_was_added_that_no_step_uses() -> None:
    narrow, wide = "k string, at timestamp", "k string, at timestamp, agent string"
    with scripted_log(start=NOW) as log:
        log.log.ensure_topic(counting(narrow).topics["events"])
        log.write("events", {"k": "a", "at": NOW})
        log.run(counting(narrow), spark=shared())
        log.log.alter_topic("events", schema=wide)
        log.write("events", {"k": "a", "at": NOW, "agent": "x"})
        results = log.run(counting(wide), spark=shared())
        assert [row["rows"] for row in results.view("counts")] == [2]
        assert results.law("counts").rows == 2
        wider = f"{wide}, place string"
        results = log.run(counting(wider), spark=shared())
        assert log.log.topic("events").topic == counting(wider).topics["events"]
        assert results.law("counts").rows == 2
        with pytest.raises(ChangedPipeline, match="the filter was"):
            log.run(counting(wider, "agent <> ''"), spark=shared())
