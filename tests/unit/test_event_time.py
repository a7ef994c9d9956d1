"""Event times that are expressions over the record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.clock import to_micros
from headrace.errors import InvalidPipeline, InvalidSchema, InvalidSetting
from headrace.log import open_log

SCHEMA = "id bigint, ts bigint, date string, time string, payload struct<created_at: timestamp>"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("event_time", "row"),
    [
        ("timestamp_millis(ts)", {"ts": to_micros(NOON) // 1000}),
        ("timestamp_seconds(ts)", {"ts": to_micros(NOON) // 1_000_000}),
        ("payload.created_at", {"payload": {"created_at": NOON}}),
        ("to_timestamp(date || ' ' || time)", {"date": "2026-01-31", "time": "12:00:00"}),
    ],
)
def test_the_frontier_of_an_embedded_topic_follows_its_expression(
    tmp_path: Path, event_time: str, row: dict[str, object]
) -> None:
    with open_log(f"file:{tmp_path}/log") as log:
        log.create_topic("t", schema=SCHEMA, event_time=event_time)
        with log.producer() as producer:
            producer.send("t", {"id": 1} | row)
            producer.send("t", {"id": 2})
            producer.flush()
        assert log.topic("t").topic.event_time == event_time
        assert log.frontier("t") == to_micros(NOON)
        assert sum(commit.misplaced for commit in log.commits("t", 0, 10)) == 1
    with open_log(f"file:{tmp_path}/log") as again:
        assert hr.suggest_lateness("t", again).dead == 1


@pytest.mark.parametrize(
    ("event_time", "reason"),
    [
        ("current_timestamp()", "changes whenever a record is read"),
        ("timestamp_micros(ts + rand())", "changes whenever a record is read"),
        ("to_timestamp(uuid())", "changes whenever a record is read"),
        ("max(ts)", "is not a value of one record"),
        ("timestamp_millis(tss)", "names a column 'tss' that is not in the schema"),
        ("timestamp_millis(", "neither a column nor an expression"),
        ("timestamp'2026-01-31'", "names no column of the record"),
        ("ts", "must be a timestamp"),
    ],
)
def test_what_is_no_event_time_is_refused_where_it_is_declared(
    event_time: str, reason: str
) -> None:
    with pytest.raises(InvalidPipeline, match=reason) as caught:
        hr.App("app").topic("t", schema=SCHEMA, event_time=event_time)
    assert "test_event_time.py" in caught.value.hint


def test_what_needs_spark_is_refused_by_the_embedded_log(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path}/log") as log:
        with pytest.raises(InvalidSchema, match="without Spark") as caught:
            log.create_topic("t", schema=SCHEMA, event_time="to_timestamp(date, 'dd.MM.yyyy')")
        assert "timestamp_millis" in caught.value.hint
        with pytest.raises(InvalidSchema, match="is bigint, and not a timestamp"):
            log.create_topic("t", schema="payload struct<ts: bigint>", event_time="payload.ts")
        with pytest.raises(InvalidSetting, match="is not a column"):
            log.create_topic(
                "t",
                schema=SCHEMA,
                event_time="timestamp_millis(ts)",
                settings={"missing_time": "arrival"},
            )


def test_a_key_that_is_a_path_has_the_name_of_its_last_part() -> None:
    app = hr.App("app")
    schema = "id bigint, at timestamp, user struct<id: bigint, country: string>"
    source = app.topic("t", schema=schema, event_time="at")
    hour, zero = timedelta(hours=1), timedelta(0)
    assert hr.deduplicate(source, by="user.country", ttl=hour, delay=zero).by == ("country",)
    with pytest.raises(
        InvalidPipeline, match=r"'user\.id' would be a second column 'id'"
    ) as caught:
        hr.deduplicate(source, by="user.id", ttl=hour, delay=zero)
    assert "user_id='user.id'" in caught.value.hint
