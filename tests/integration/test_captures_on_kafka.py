"""A database captured into topics of a broker: each transaction in one transaction of Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from headrace.cdc import Progress, run
from headrace.cdc.capture import POINTS
from headrace.log import open_log
from headrace.servers.kafka.state import ClusterState
from tests.conformance.sources.sqlite import SqliteStage
from tests.conformance.sources.stage import SMALL, Crashed, crash_at
from tests.waiting import left

pytestmark = pytest.mark.service

_numbers = itertools.count()


class KafkaStage(SqliteStage):
    """A database of SQLite that is captured into a broker, under a prefix of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.log.close()
        self.log = open_log(url)
        self.prefix = f"shop-{folder.name}-{next(_numbers)}"

    def capture(self, **options: Any) -> Progress:
        with self.source(options.pop("tables", None)) as source:
            return run(source, self.log, self.prefix, until_caught_up=True, **options)

    def topic(self, table: str) -> str:
        return f"{self.prefix}.main.{table}"


@pytest.fixture
def stage(
    broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafkaStage]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    made = KafkaStage(tmp_path, f"kafka://127.0.0.1:{broker.nodes[0].port}")
    yield made
    made.close()


def test_a_capture_into_a_broker_that_crashes_anywhere_loses_and_repeats_nothing(
    stage: KafkaStage,
) -> None:
    stage.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    stage.execute("INSERT INTO items VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a'), (5, 'a')")
    crashed = 0
    for point in POINTS:
        try:
            stage.capture(limits=SMALL, crash_point=crash_at(point, 1))
        except Crashed:
            crashed += 1
        stage.transaction(
            f"UPDATE items SET name = '{point}' WHERE id < 4",
            "DELETE FROM items WHERE id = 5",
            "INSERT INTO items VALUES (5, 'b')",
        )
        stage.transaction(*(f"UPDATE items SET name = 'x{n}' WHERE id = 2" for n in range(12)))
    assert crashed == len(POINTS)
    stage.capture(limits=SMALL)
    assert stage.folded("items") == stage.rows("items")
    changes = [change for change in stage.changes("items") if change["source"]["tx"] is not None]
    places = [(change["source"]["tx"], change["source"]["order"]) for change in changes]
    assert len(places) == len(set(places)), "a change is in the topic once"


def test_a_reader_of_the_broker_sees_a_transaction_whole_or_not_at_all(stage: KafkaStage) -> None:
    for table in ("items", "lines"):
        stage.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT)")
    stage.capture()
    stage.transaction("INSERT INTO items VALUES (1, 'a')", "INSERT INTO lines VALUES (1, 'a')")
    with pytest.raises(Crashed):
        stage.capture(crash_point=crash_at("encoded", 1))
    assert [len(stage.changes(table)) for table in ("items", "lines")] == [0, 0]
    stage.capture()
    ends = {table: markers(stage, table) for table in ("items", "lines")}
    # A record, and the marker of one commit after it.
    assert ends == {"items": (1, 2), "lines": (1, 2)}


def markers(stage: KafkaStage, table: str) -> tuple[int, int]:
    """The records of a topic that are committed, and its offsets with the ends of transactions."""
    servers = stage.log.url.removeprefix("kafka://")
    settings = {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        place = TopicPartition(stage.topic(table), 0, 0)
        consumer.assign([place])
        found: list[Message] = []
        while not found:
            found += consumer.consume(10, timeout=min(1.0, left()))
        _, end = consumer.get_watermark_offsets(place, timeout=left())
        return len(found), end
    finally:
        consumer.close()
