"""Real time on a real broker: results, late rows and dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from headrace.clock import SystemClock, to_datetime
from headrace.log import Log, open_log
from headrace.log.partitioner import partition_of
from headrace.pipeline.stream import sources
from headrace.servers.kafka import ClusterState
from tests.live import Live, declared, expected, once, records_in, rows_in, uses
from tests.property.flagging import JUDGES

LONG_AGO = datetime(2026, 1, 31, 12, tzinfo=UTC)

pytestmark = pytest.mark.service


def committed(broker: ClusterState, group: str, topic: str) -> int:
    """The number of records of a topic that a group has committed."""
    admin = AdminClient({"bootstrap.servers": broker.servers})
    wish = ConsumerGroupTopicPartitions(group)
    (answer,) = admin.list_consumer_group_offsets([wish]).values()
    places = answer.result().topic_partitions or []
    return sum(place.offset for place in places if place.topic == topic)


def create_outlets(log: Log) -> None:
    """Create two topics before the application does, with keys, in Avro, and compacted."""
    log.create_topic(
        "live.tagged",
        schema="page string, tag string, cost decimal(12,2), at timestamp",
        key="page",
        partitions=5,
        settings={"format": "avro"},
    )
    log.create_topic(
        "live.late",
        schema="use string, card string, n bigint, at timestamp, watermark timestamp, "
        "late_by double, more string",
        key="use",
        event_time="at",
        partitions=5,
        settings={"cleanup": "compact"},
    )


def assert_in_place(log: Log, topic: str, key: str) -> None:
    """Check that each record of a topic is in the partition where headrace would write it."""
    for record in records_in(log, topic):
        assert record.partition == partition_of(record.value[key].encode(), 5)


def assert_dead(log: Log) -> None:
    """Check the dead letters: records that are not rows, and rows without a valid event time."""
    dead = {row["row"]: row["reason"] for row in rows_in(log, "live.dead")}
    assert dead.pop('{"value":"{no json"}') == "does not decode"
    assert dead.pop('{"bytes":"ff00"}') == "does not decode"
    # In hex it is larger than Java's producer would accept.
    assert dead.pop('{"bytes":"' + "ff" * 900_000 + '"}') == "does not decode"
    assert dead.pop('{"page": "e"}') == "no event time"
    # A table's undecodable records are reported at the start, and then at every checkpoint.
    assert dead.pop('{"value":"{no card"}') == "does not decode"
    assert dead.pop('{"value":"[no card]"}') == "does not decode"
    assert list(dead.values()) == ["ahead of the clock"]


def test_rows_come_out_as_the_oracle_says_and_nothing_is_dropped_in_silence(
    broker: ClusterState, tmp_path: Path
) -> None:
    file = tmp_path / "live_app.py"
    step, cards = declared(file, "live")
    with Live(f"{file}:app", broker.url, tmp_path) as live, open_log(broker.url) as log:
        for source in (*sources(step), cards):
            log.ensure_topic(source.topic)
        raw = Producer({"bootstrap.servers": broker.servers})
        raw.produce("live.cards", b"{no card")
        raw.flush()
        with log.producer() as producer:
            producer.send("live.cards", {"card": "a", "limit": 1, "since": LONG_AGO})
        create_outlets(log)
        live.start()
        outlets = {"live.tagged", "live.alerts", "live.dear"}
        live.until(lambda: outlets <= {topic.name for topic in log.topics()})
        at = to_datetime(SystemClock().now())
        with log.producer() as producer:
            for page, tags in (("a", ["x", "y"]), ("bot", ["x"]), ("b", []), ("c", None)):
                visit = {"page": page, "tags": tags, "cost": "1.10", "at": at}
                producer.send("live.visits", visit)
            producer.send("live.visits", {"page": "d", "tags": ["x"], "at": at + timedelta(days=1)})
            for use in uses(60, 1):
                producer.send("live.uses", use)
        raw.produce("live.cards", b"[no card]")
        raw.produce("live.visits", b"{no json")
        raw.produce("live.visits", b"\xff\x00")
        raw.produce("live.visits", b"\xff" * 900_000)
        raw.produce("live.visits", b'{"page": "e"}')
        raw.flush()
        meant = expected(log, step, JUDGES)
        ids = {alert["alert"] for alert in meant.alerts}
        assert ids
        assert meant.late
        live.until(lambda: ids <= once(rows_in(log, "live.alerts")).keys())
        live.until(lambda: len(rows_in(log, "live.late")) >= len(meant.late))
        live.until(lambda: len(rows_in(log, "live.dead")) >= 7)

        assert once(rows_in(log, "live.alerts")) == once(meant.alerts)
        dear = {
            row["use"]
            for row in rows_in(log, "live.uses")
            if row["card"] == "a" and (row["n"] or 0) > 1
        } - {row["use"] for _, row, _ in meant.late}
        live.until(lambda: len(once(rows_in(log, "live.dear"))) >= len(dear))
        assert dear
        assert {row["use"] for row in rows_in(log, "live.dear")} == dear
        late = {row["use"]: row for row in rows_in(log, "live.late")}
        assert late.keys() == {row["use"] for _, row, _ in meant.late}
        tagged = rows_in(log, "live.tagged")
        assert [(row["page"], row["tag"], str(row["cost"])) for row in tagged] == [
            ("a", "x", "1.10"),
            ("a", "y", "1.10"),
        ]
        assert_in_place(log, "live.tagged", "page")
        assert_in_place(log, "live.late", "use")
        assert_dead(log)
        # At the next checkpoint, Kafka's own tools show the progress.
        live.until(lambda: committed(broker, "live.live.alerts", "live.uses") == 60)
        said = live.stop()
        assert said.keys() == {"live.tagged", "live.alerts", "live.dear"}
        assert all(step["holds"] for step in said.values())
