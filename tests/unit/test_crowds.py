"""Counting the rows of a join's keys starts at the first row that the log still has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.operators.stream_join.hot_keys import SideKeys
from headrace.plan.position import Position, position_at
from headrace.plan.range_read import RangeRead
from headrace.testing import scripted_log

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_rows_that_were_read_and_are_gone_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    app = hr.App("ads")
    short = {"segment_age": "1m", "retention": "1h"}
    shown = app.topic("shown", schema="ad int, at timestamp", event_time="at", settings=short)
    clicks = app.topic("clicks", schema="ad int, at timestamp", event_time="at")
    join = hr.join(shown, clicks, on="ad", after=9 * MINUTE, delay=MINUTE, prefix="click_", limit=2)
    begun: list[tuple[int, ...]] = []

    def count(crowd: SideKeys, end: Mapping[str, Position]) -> pa.Table:
        begun.append(crowd.upto["shown"].offsets)
        return pa.table({"ad": pa.array([], pa.int32())})

    monkeypatch.setattr(SideKeys, "_count", count)
    monkeypatch.setattr(SideKeys, "_merged", lambda crowd, new: new)
    with scripted_log(start=NOON) as log:
        log.write(clicks, {"ad": 1, "at": NOON})
        crowd = SideKeys(RangeRead(cast(SparkSession, None), log.log), shown, ["ad"], MINUTE, join)
        log.write(shown, *[{"ad": 1, "at": NOON}] * 2)
        start = {"shown": position_at(log.log, "shown", log.log.head())}
        assert crowd.hottest(start, start) is None
        assert begun == [], "two rows cannot be more than the limit"
        log.pass_time(2 * timedelta(hours=1))
        log.write(shown, *[{"ad": 1, "at": NOON}] * 3)
        log.log.upkeep("shown")
        end = {"shown": position_at(log.log, "shown", log.log.head())}
        crowd.hottest(start, end)
    assert begun == [(2,)]
