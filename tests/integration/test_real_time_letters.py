"""In real time, undecodable records of a lookup table become dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.application.live import LiveRun
from headrace.errors import InvalidSetting, PipelineError
from headrace.log import Topic
from headrace.log.dead_letter import DEAD_LETTER
from headrace.pipeline.stream import Source
from headrace.plan.steps import steps_of
from headrace.runtime.realtime.query import TableLetters
from headrace.servers.kafka.state import ClusterState
from tests.kafka_runs import Runs, runs
from tests.live import rows_in
from tests.spark import shared

pytestmark = pytest.mark.service

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CARD = {"card": "a", "limit": 5, "since": NOON}


@pytest.fixture
def kafka(broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as made:
        yield made


def declared(kafka: Runs) -> tuple[hr.App, Source]:
    """Uses of cards, whose limits are in a table."""
    app = hr.App(kafka.name("app"))
    cards = app.topic(
        kafka.name("cards"),
        schema="card string, limit int, since timestamp",
        key="card",
        event_time="since",
        partitions=2,
    )
    uses = app.topic(
        kafka.name("uses"),
        schema="use string, card string, amount int, at timestamp",
        key="card",
        event_time="at",
    )
    known = hr.enrich(uses, hr.table(cards, key="card"), on={"card": "card"}, mode="latest")
    alerts = hr.alerts(
        known, by="card", event="use", within=timedelta(minutes=1), delay=timedelta(minutes=1),
        rules={"dear": hr.rule("amount > limit", evidence="recent", value="amount")},
    )  # fmt: skip
    app.publish(kafka.name("alerts"), alerts)
    return app, cards


def letters(kafka: Runs, tmp_path: Path, app: hr.App, cards: Source) -> TableLetters:
    (step,) = steps_of(app)
    kafka.log.ensure_topic(Topic(step.dead_letters, 1, DEAD_LETTER, None, "appended"))
    return TableLetters(shared(), kafka.log, step, cards.topic, tmp_path / "live" / "place")


def letters_of(kafka: Runs, app: hr.App) -> list[tuple[int, int, str, str]]:
    return [
        (row["partition"], row["offset"], row["reason"], row["row"])
        for row in rows_in(kafka.log, f"{app.name}.dead")
    ]


def test_each_is_told_once_and_what_comes_later_is_told_later(kafka: Runs, tmp_path: Path) -> None:
    app, cards = declared(kafka)
    kafka.send(cards, CARD, b"{no json", None, b"\xff\x00", partition=0)
    kafka.send(cards, b'{"card": "b"}', partition=1)
    letters(kafka, tmp_path, app, cards).tell()
    first = [
        (0, 1, "does not decode", '{"value":"{no json"}'),
        (0, 3, "does not decode", '{"bytes":"ff00"}'),
        (1, 0, "no event time", '{"card": "b"}'),
    ]
    assert letters_of(kafka, app) == first

    letters(kafka, tmp_path, app, cards).tell()
    assert letters_of(kafka, app) == first

    kafka.send(cards, CARD, b"[1]", partition=1)
    letters(kafka, tmp_path, app, cards).tell()
    assert letters_of(kafka, app) == [*first, (1, 2, "does not decode", '{"value":"[1]"}')]


def test_a_table_whose_topic_was_made_again_is_another_table(kafka: Runs) -> None:
    app, cards = declared(kafka)
    kafka.send(cards, CARD, partition=0)
    with pytest.raises(InvalidSetting, match="tasks at once"):  # the Spark of tests is small
        LiveRun(app, kafka.log, spark=shared())
    kafka.log.delete_topic(cards.topic.name)
    kafka.send(cards, CARD, partition=0)
    with pytest.raises(PipelineError, match=r"cards.* was deleted and created again"):
        LiveRun(app, kafka.log, spark=shared())
    with pytest.raises(InvalidSetting, match="tasks at once"):
        LiveRun(app, kafka.log, spark=shared(), fresh=True)


def test_after_a_crash_before_it_was_written_down_a_letter_comes_again(
    kafka: Runs, tmp_path: Path
) -> None:
    app, cards = declared(kafka)
    kafka.send(cards, b"{no json", partition=0)
    letters(kafka, tmp_path, app, cards).tell()
    (tmp_path / "live" / "place").unlink()
    letters(kafka, tmp_path, app, cards).tell()
    assert letters_of(kafka, app) == [(0, 0, "does not decode", '{"value":"{no json"}')] * 2
