"""A run sends a span for each batch that it has stored, of queries and of rounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.log import open_log
from headrace.runtime import tracing
from headrace.runtime.tracing import Span
from tests import spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Kept:
    """Keeps the spans that are sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def send(self, span: Span) -> None:
        self.spans.append(span)


def test_each_batch_of_a_query_and_of_rounds_is_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    monkeypatch.setattr(tracing, "traces", lambda: kept)
    app = hr.App("traced")
    views = app.topic("views", schema="url string, at timestamp", key="url", event_time="at")
    lateness = hr.Lateness(delay=MINUTE, grace=MINUTE)
    hits = hr.aggregate(
        views, by="url", window=hr.tumbling(MINUTE), lateness=lateness, hits=hr.count()
    )
    app.view("hits", hits, key=["url", "window_start"])
    once = hr.deduplicate(views, by="url", ttl=MINUTE, delay=MINUTE)
    app.publish("once", once)
    with open_log(f"file:{tmp_path / 'log'}") as log:
        log.ensure_topic(app.topics["views"])
        with log.producer() as producer:
            for n in range(40):
                producer.send("views", {"url": f"/{n % 3}", "at": NOON + timedelta(seconds=n)})
        hr.run(app, log, spark=spark.shared())
    parts: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for span in kept.spans:
        step = str(span.attributes["headrace.step"])
        rows[step] = rows.get(step, 0) + int(span.attributes["headrace.rows"])
        parts.setdefault(step, set()).update(part.name for part in span.parts)
        assert all(span.start <= part.start <= part.end for part in span.parts)
    assert rows == {"hits": 40, "once": 40}
    assert "compute and store" in parts["hits"]
    assert parts["once"] == {"compute", "store"}
