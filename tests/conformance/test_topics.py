"""Topics: declared, listed, described, altered and deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import to_datetime
from headrace.errors import (
    InvalidName,
    InvalidSetting,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from headrace.log import EARLIEST, Capability, Log, TopicSettings
from tests.conformance.backends import START
from tests.conformance.stage import LONG, Stage, needs, offsets, read, send, values

ORDERS = "id string, amount int, at timestamp"


def test_a_new_log_has_no_topics(log: Log) -> None:
    assert log.topics() == []


def test_a_topic_is_described_as_it_was_declared(log: Log) -> None:
    declared = log.create_topic("clicks", partitions=3, settings={"retention": "7d"})
    assert declared.partitions == 3
    assert declared.schema is None
    assert declared.settings == TopicSettings(retention=timedelta(days=7))
    state = log.topic("clicks")
    assert state.topic == declared
    assert [p.partition for p in state.partitions] == [0, 1, 2]
    assert [(p.first, p.end) for p in state.partitions] == [(0, 0)] * 3
    assert (state.records, state.frontier) == (0, None)
    assert [p.last_append for p in state.partitions] == [None] * 3


def test_a_typed_topic_is_described_as_it_was_declared(log: Log) -> None:
    with needs(log, Capability.TYPED_TOPICS):
        declared = log.create_topic("orders", schema=ORDERS, key="id", event_time="at")
        assert declared.schema == pa.schema(
            [
                ("id", pa.string()),
                ("amount", pa.int32()),
                ("at", pa.timestamp("us", tz="UTC")),
            ]
        )
        assert (declared.key, declared.event_time) == ("id", "at")
        assert log.topic("orders").topic == declared


def test_a_schema_may_be_given_as_arrow_has_it(log: Log) -> None:
    with needs(log, Capability.TYPED_TOPICS):
        schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
        assert log.create_topic("orders", schema=schema).schema == schema


def test_topics_are_listed_by_name(log: Log) -> None:
    for name in ("b", "c", "a"):
        log.create_topic(name)
    assert [topic.name for topic in log.topics()] == ["a", "b", "c"]


def test_a_description_says_what_is_in_the_topic(log: Log) -> None:
    log.create_topic("clicks", partitions=2)
    receipt = send(log, "clicks", b"x", b"y", partition=1)
    state = log.topic("clicks")
    assert state.partitions[0].last_append is None
    assert state.partitions[1].last_append == receipt.timestamp
    assert to_datetime(receipt.timestamp) >= START
    assert state.partitions[1].end - state.partitions[1].first >= 2
    assert state.bytes is None or state.bytes >= 2


def test_a_name_can_be_taken_only_once(log: Log) -> None:
    log.create_topic("clicks")
    with pytest.raises(TopicExists, match="clicks"):
        log.create_topic("clicks", partitions=2)
    assert log.topic("clicks").topic.partitions == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "a b", "é", "a\n", "x" * 250])
def test_a_name_that_could_be_mistaken_for_a_path_is_refused(log: Log, name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        log.create_topic(name)
    assert caught.value.details["name"] == name
    assert log.topics() == []


def test_a_name_may_have_249_characters(log: Log) -> None:
    name = "x" * 249
    log.create_topic(name)
    send(log, name, b"1")
    assert values(log, name) == [b"1"]


USES: dict[str, Callable[[Log], Any]] = {
    "describe": lambda log: log.topic("nope"),
    "alter": lambda log: log.alter_topic("nope", partitions=2),
    "delete": lambda log: log.delete_topic("nope"),
    "read": lambda log: log.read("nope"),
    "consume": lambda log: log.consumer("nope"),
    "find": lambda log: log.offset_at("nope", 0, EARLIEST),
    "send": lambda log: send(log, "nope", b"x"),
    "reset": lambda log: log.reset_group("group", "nope", EARLIEST),
}


@pytest.mark.parametrize("use", USES)
def test_a_topic_that_is_not_there_is_named_in_the_error(log: Log, use: str) -> None:
    with pytest.raises(UnknownTopic, match="nope") as caught:
        USES[use](log)
    assert caught.value.details["topic"] == "nope"


def test_a_topic_that_is_not_there_leaves_no_group_behind(log: Log) -> None:
    with pytest.raises(UnknownTopic):
        log.reset_group("group", "nope", EARLIEST)
    with pytest.raises(UnknownGroup):
        log.group("group")


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_topic_has_1_to_10000_partitions(log: Log, partitions: int) -> None:
    with pytest.raises(InvalidSetting, match=str(partitions)):
        log.create_topic("clicks", partitions=partitions)


def test_settings_are_altered_one_by_one(log: Log) -> None:
    log.create_topic("clicks", settings={"retention": "7d", "retention_bytes": "1GiB"})
    altered = log.alter_topic("clicks", settings={"retention": "none"})
    assert altered.settings == TopicSettings(retention_bytes=1 << 30)
    assert log.topic("clicks").topic == altered


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retentoin": "7d"}, "retention"),
        ({"retention": "7 moons"}, "7 moons"),
        ({"retention": 3600}, "3600"),
        ({"retention": timedelta(days=-1)}, "negative"),
        ({"segment_bytes": 0}, "Choose 1 to"),
        ({"cleanup": "shred"}, "shred"),
        ({"compression": "rar"}, "rar"),
        ({"max_record_bytes": "none"}, "needs a value"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(log: Log, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        log.create_topic("clicks", settings=settings)
    log.create_topic("clicks")
    with pytest.raises(InvalidSetting, match=said):
        log.alter_topic("clicks", settings=settings)
    assert log.topic("clicks").topic.settings == TopicSettings()


def test_partitions_can_be_added_and_not_taken_away(log: Log) -> None:
    log.create_topic("clicks", partitions=2)
    assert log.alter_topic("clicks", partitions=3).partitions == 3
    with pytest.raises(InvalidSetting, match="reduced"):
        log.alter_topic("clicks", partitions=1)
    send(log, "clicks", b"x", partition=2)
    assert values(log, "clicks", partitions=[2]) == [b"x"]


def test_a_producer_at_work_sees_added_partitions(log: Log) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG) as producer:
        producer.send("clicks", b"before")
        producer.flush()
        log.alter_topic("clicks", partitions=4)
        for number in range(16):
            producer.send("clicks", str(number).encode(), key=str(number))
        producer.flush()
        for number in range(16):
            producer.send("clicks", str(number).encode(), key=str(number))
    ends = [p.end for p in log.topic("clicks").partitions]
    assert all(end > 0 for end in ends), ends


def test_a_deleted_topic_is_gone_and_its_name_is_free(stage: Stage) -> None:
    log = stage.log
    log.create_topic("clicks", partitions=2)
    send(log, "clicks", b"old", partition=1)
    with log.consumer("clicks", group="readers") as consumer:
        stage.drain(consumer)
    log.delete_topic("clicks")
    with pytest.raises(UnknownTopic):
        log.topic("clicks")
    assert log.group("readers").lags == ()
    log.create_topic("clicks")
    assert log.topic("clicks").records == 0
    send(log, "clicks", b"new")
    with log.consumer("clicks", group="readers") as consumer:
        assert [record.value for record in stage.drain(consumer)] == [b"new"]
    assert offsets(log, "clicks") == [0]


def test_records_sent_to_a_topic_deleted_meanwhile_do_not_reach_its_successor(log: Log) -> None:
    log.create_topic("clicks", partitions=4)
    producer = log.producer(linger=LONG)
    delivery = producer.send("clicks", b"old", partition=3)
    log.delete_topic("clicks")
    log.create_topic("clicks", partitions=2)
    with pytest.raises(UnknownTopic):
        producer.flush()
    with pytest.raises(UnknownTopic):
        delivery.wait()
    producer.send("clicks", b"new", partition=1)
    producer.close()
    assert values(log, "clicks") == [b"new"]


def test_a_scan_says_so_when_its_topic_is_deleted_on_the_way(log: Log) -> None:
    log.create_topic("clicks", partitions=2)
    for partition in (0, 1):
        send(log, "clicks", b"x", partition=partition)
    scan = log.read("clicks")
    next(scan)
    log.delete_topic("clicks")
    with pytest.raises(UnknownTopic):
        list(scan)


def test_topics_and_records_survive_a_restart(stage: Stage) -> None:
    declared = stage.log.create_topic("clicks", partitions=2, settings={"retention": "1d"})
    send(stage.log, "clicks", b"x", partition=1)
    before = read(stage.log, "clicks")
    log = stage.reopen()
    assert log.topics() == [declared]
    assert read(log, "clicks") == before
