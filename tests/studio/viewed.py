"""A log whose views are made by the sink from the oracle's panes, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.clock import VirtualClock
from headrace.log import open_log
from headrace.pipeline.stream import Source
from headrace.plan.steps import steps_of
from tests.property.sinking import sink_all

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_TYPES = {
    "url": pa.string(),
    "hashtag": pa.string(),
    "hits": pa.int64(),
    "people": pa.int64(),
    "posts": pa.int64(),
}


def pageviews() -> tuple[hr.App, Source]:
    """Page views per minute, as pipelines/pageviews.py has them."""
    app = hr.App("pageviews")
    topic = app.topic(
        "pageviews", schema="url string, user string, at timestamp", key="url", event_time="at"
    )
    made = hr.aggregate(
        topic,
        by="url",
        window=hr.tumbling(60 * SECOND),
        lateness=hr.Lateness(delay=10 * SECOND, grace=60 * SECOND),
        hits=hr.count(),
        people=hr.approx_distinct("user"),
    )
    app.view("hits_per_minute", made, key=["url", "window_start"])
    return app, topic


def hit(url: str, second: float, user: str = "ann") -> dict[str, Any]:
    """A page view, so many seconds after noon."""
    return {"url": url, "user": user, "at": NOON + second * SECOND}


def arrive(folder: Path, topic: Source, *arrivals: tuple[float, Mapping[str, Any]]) -> str:
    """Append rows one by one, each so many seconds after noon."""
    clock = VirtualClock(NOON)
    with open_log(f"file:{folder}", clock=clock) as log:
        log.ensure_topic(topic.topic)
        passed = 0.0
        for at, row in arrivals:
            clock.advance((at - passed) * SECOND)
            passed = at
            with log.producer(acks="written") as producer, producer.transaction() as transaction:
                transaction.send(topic.topic.name, dict(row))
        return log.url


def write(folder: Path, app: hr.App, topic: Source, *commits: Iterable[Mapping[str, Any]]) -> str:
    """Append commits to a topic, and bring the views of an application up to date."""
    with open_log(f"file:{folder}", clock=VirtualClock(NOON + 3600 * SECOND)) as log:
        log.ensure_topic(topic.topic)
        for rows in commits:
            with log.producer(acks="written") as producer, producer.transaction() as transaction:
                for row in rows:
                    transaction.send(topic.topic.name, dict(row))
        for step in steps_of(app):
            sink_all(log, step, _TYPES, max_commits=1)
        return log.url
