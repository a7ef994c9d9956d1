"""Columns of typed topics: valid declarations, and columns added later."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidSchema, InvalidSetting
from headrace.log import Capability, Log
from tests.conformance.stage import LONG, needs, send, table, values

TYPED = Capability.TYPED_TOPICS


@pytest.mark.parametrize("column", ["key", "event_time"])
def test_a_raw_topic_has_no_columns_to_name(log: Log, column: str) -> None:
    with pytest.raises(InvalidSchema, match="raw"):
        if column == "key":
            log.create_topic("clicks", key="id")
        else:
            log.create_topic("clicks", event_time="at")


def test_a_raw_topic_cannot_be_given_columns_later(log: Log) -> None:
    log.create_topic("clicks")
    with needs(log, TYPED), pytest.raises(InvalidSchema, match="raw"):
        log.alter_topic("clicks", schema="id string")


@pytest.mark.parametrize(
    ("schema", "key", "event_time", "said"),
    [
        ("id strng", None, None, "strng"),
        ("id string", "name", None, "name"),
        ("id string", None, "at", "at"),
        ("id string, at string", None, "at", "timestamp"),
        ("tags array<string>", "tags", None, "key"),
        ("", None, None, "column"),
        ("id string, id int", None, None, "id"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(
    log: Log, schema: str, key: str | None, event_time: str | None, said: str
) -> None:
    with needs(log, TYPED):
        with pytest.raises(InvalidSchema, match=said):
            log.create_topic("orders", schema=schema, key=key, event_time=event_time)
        assert log.topics() == []


def test_a_topic_without_a_key_cannot_be_compacted(log: Log) -> None:
    with needs(log, TYPED):
        with pytest.raises(InvalidSetting, match="key"):
            log.create_topic("orders", schema="n int", settings={"cleanup": "compact"})
        log.create_topic("orders", schema="n int")
        with pytest.raises(InvalidSetting, match="key"):
            log.alter_topic("orders", settings={"cleanup": "compact"})


def test_old_rows_are_null_in_columns_that_were_added_later(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string")
        send(log, "orders", {"id": "old"})
        log.alter_topic("orders", schema="id string, amount int, tags array<string>")
        send(log, "orders", {"id": "new", "amount": 5, "tags": ["a"]})
        assert values(log, "orders") == [
            {"id": "old", "amount": None, "tags": None},
            {"id": "new", "amount": 5, "tags": ["a"]},
        ]
        assert table(list(log.read("orders"))).schema.names == ["id", "amount", "tags"]
        assert values(log, "orders", columns=["amount"]) == [{"amount": None}, {"amount": 5}]


def test_old_rows_are_null_in_fields_that_a_struct_got_later(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string, item struct<name: string>", key="id")
        send(log, "orders", {"id": "old", "item": {"name": "a"}}, {"id": "none", "item": None})
        with log.producer(linger=LONG) as producer:
            producer.send("orders", {"id": "on its way", "item": {"name": "b"}})
            log.alter_topic("orders", schema="id string, item struct<name: string, size: int>")
        send(log, "orders", {"id": "new", "item": {"name": "c", "size": 1}})
        assert values(log, "orders") == [
            {"id": "old", "item": {"name": "a", "size": None}},
            {"id": "none", "item": None},
            {"id": "on its way", "item": {"name": "b", "size": None}},
            {"id": "new", "item": {"name": "c", "size": 1}},
        ]


def test_rows_on_their_way_fit_a_topic_that_grows_meanwhile(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string")
        with log.producer(linger=LONG) as producer:
            producer.send("orders", {"id": "on its way"})
            with producer.transaction() as transaction:
                transaction.send("orders", {"id": "in a transaction"})
                log.alter_topic("orders", schema="id string, amount int")
            producer.send("orders", {"id": "after", "amount": 1})
        assert values(log, "orders") == [
            {"id": "on its way", "amount": None},
            {"id": "in a transaction", "amount": None},
            {"id": "after", "amount": 1},
        ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("amount int", "begin"),
        ("amount int, id string", "begin"),
        ("id int", "begin"),
        ("id string not null", "begin"),
        ("id string, amount int not null", "nullable"),
        ("id struct<a: int>", "begin"),
    ],
)
def test_a_schema_only_grows_by_nullable_columns_at_its_end(
    log: Log, schema: str, said: str
) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string")
        send(log, "orders", {"id": "a"})
        with pytest.raises(InvalidSchema, match=said):
            log.alter_topic("orders", schema=schema)
        assert values(log, "orders") == [{"id": "a"}]


@pytest.mark.parametrize(
    "schema",
    ["id string, item struct<>", "id string, item struct<size: int, name: string>",
     "id string, item struct<name: int>", "id string, item struct<name: string, n: int not null>"],
)  # fmt: skip
def test_a_struct_only_grows_by_nullable_fields_at_its_end(log: Log, schema: str) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string, item struct<name: string>")
        with pytest.raises(InvalidSchema):
            log.alter_topic("orders", schema=schema)


def test_a_topic_with_rows_of_two_schemas_can_be_compacted(log: Log) -> None:
    with needs(log, TYPED, Capability.UPKEEP):
        log.create_topic("users", schema="id string", key="id", settings={"cleanup": "compact"})
        send(log, "users", {"id": "a"}, {"id": "b"}, {"id": "a"})
        log.alter_topic("users", schema="id string, name string")
        send(log, "users", {"id": "b", "name": "B"})
        log.compact("users")
        assert values(log, "users") == [{"id": "a", "name": None}, {"id": "b", "name": "B"}]
