"""A pipeline stops if its topic is not the one it has read, at the start and while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace.application.rebuild.rebuild import rebuild
from headrace.application.run import Run
from headrace.clock import SystemClock
from headrace.errors import PipelineError
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared
from tests.waiting import left

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATENESS = hr.Lateness(MINUTE, MINUTE)
SCHEMA = "k string, at timestamp"
MADE_AGAIN = "Topic 'events' was deleted and created again"


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOW) as log:
        yield log


def counting() -> hr.App:
    app = hr.App("shop")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    counted = hr.aggregate(
        source, by="k", window=hr.tumbling(MINUTE), lateness=LATENESS, rows=hr.count()
    )
    app.view("counts", counted)
    return app


def copying() -> hr.App:
    """A step that runs in rounds."""
    app = hr.App("shop")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    app.publish("copies", hr.deduplicate(source, by=["k", "at"], ttl=MINUTE, delay=MINUTE))
    return app


def rows(count: int) -> list[dict[str, Any]]:
    return [{"k": "a", "at": NOW + timedelta(seconds=n / 10)} for n in range(count)]


def make_again(log: ScriptedLog, app: hr.App, count: int) -> None:
    log.log.delete_topic("events")
    log.log.ensure_topic(app.topics["events"])
    log.write("events", *rows(count))


@pytest.mark.parametrize("count", [150, 60])
def test_a_pipeline_stops_where_its_topic_was_made_again(log: ScriptedLog, count: int) -> None:
    app = counting()
    log.log.ensure_topic(app.topics["events"])
    log.write("events", *rows(100))
    before = log.run(app, spark=shared())
    assert before.law("counts").counted == 100
    make_again(log, app, count)
    with pytest.raises(PipelineError, match=MADE_AGAIN) as caught:
        log.run(app, spark=shared())
    assert "--fresh" in caught.value.hint
    with pytest.raises(PipelineError, match=MADE_AGAIN):
        rebuild(app, "counts", log.log, spark=shared())
    assert sum(row["rows"] for row in before.view("counts")) == 100
    with Run(app, log.log, until_caught_up=True, spark=shared(), fresh=True) as anew:
        anew.wait()
    assert sum(row["rows"] for row in before.view("counts")) == count


@pytest.mark.parametrize("declare", [counting, copying])
def test_a_pipeline_that_runs_stops_where_its_topic_is_made_again(
    log: ScriptedLog, declare: Any
) -> None:
    app = declare()
    log.log.ensure_topic(app.topics["events"])
    log.write("events", *rows(100))
    with Run(app, log.log, spark=shared(), clock=SystemClock()) as running:
        while running.progress()[0].law.rows < 100:
            assert not running.wait(0.1)
        make_again(log, app, 150)
        with pytest.raises(PipelineError, match=MADE_AGAIN):
            running.wait(left())
        assert running.progress()[0].law.rows == 100
        assert running.progress()[0].lag == 150


def test_a_stream_by_hand_stops_where_its_topic_was_made_again(
    log: ScriptedLog, tmp_path: Path
) -> None:
    app = counting()
    log.log.ensure_topic(app.topics["events"])
    sizes: list[int] = []

    def stream() -> None:
        query = (
            shared()
            .readStream.format("headrace")
            .option("log", log.log.url)
            .option("topic", "events")
            .load()
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, _: sizes.append(frame.count()))
            .start()
        )
        query.awaitTermination()

    log.write("events", *rows(100))
    stream()
    make_again(log, app, 150)
    with pytest.raises(StreamingQueryException, match=MADE_AGAIN):
        stream()
    assert sizes == [100]
