"""Rows of megabytes in a pipeline: counted, updated, late and dead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.log import TopicSettings
from headrace.testing import scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MIB = 1 << 20


@pytest.mark.slow
def test_rows_larger_than_the_usual_limit_reach_every_output() -> None:
    app = hr.App("notes")
    source = app.topic(
        "notes",
        schema="who string, text string, at timestamp",
        event_time="at",
        settings=TopicSettings(max_record_bytes=4 * MIB),
    )
    longest = hr.aggregate(
        source,
        by="who",
        window=hr.tumbling(MINUTE),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        text=hr.max("text"),
    )
    app.view("longest", longest)
    app.publish("out", longest)
    app.publish("late", longest.late)

    def note(minute: int | None, text: str) -> dict[str, Any]:
        at = None if minute is None else NOON + minute * MINUTE
        return {"who": "ada", "text": text * (2 * MIB), "at": at}

    with scripted_log(start=NOON) as log:
        log.write(source, note(0, "a"), at=NOON + MINUTE)
        log.run(app, spark=shared())
        log.write(source, note(0, "b"))  # the change has the row before and the row after
        log.write(source, note(5, "c"), at=NOON + 5 * MINUTE)
        log.write(source, note(0, "d"))  # too late
        log.write(source, note(None, "e"))  # dead
        results = log.run(app, spark=shared())
        law = results.law("longest")
        assert (law.late, law.dead) == (1, 1)
        changes = results.topic("notes.longest.changes")
        assert [(c["op"], c["after"]["text"][:1]) for c in changes] == [
            *(("c", "a"), ("u", "b"), ("c", "c")),
        ]
        assert changes[1]["before"]["text"] == "a" * (2 * MIB)
        for topic, letters in (("out", {"a", "b", "c"}), ("late", {"d"})):
            rows = results.topic(topic)
            assert {row["text"][:1] for row in rows} == letters
            assert {len(row["text"]) for row in rows} == {2 * MIB}
        (dead,) = results.topic("notes.dead")
        assert "e" * (2 * MIB) in dead["row"]
