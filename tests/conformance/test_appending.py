"""Appending whole Arrow batches: cast to the topic's schema, split by size, ignored when empty."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import InvalidRecord
from headrace.log import Batch, Capability, Log
from tests.conformance.stage import LONG, needs, read, values

TYPED = Capability.TYPED_TOPICS


def test_append_takes_record_batches_and_tables(log: Log) -> None:
    log.create_topic("clicks")
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b"], pa.binary())})
    with log.producer() as producer:
        receipt = producer.append("clicks", batch)
        assert receipt.records >= 2
        producer.append("clicks", pa.table({"key": ["k"], "value": ["c"]}))
    assert [(r.key, r.value) for r in read(log, "clicks")] == [
        (None, b"a"), (None, b"b"), (b"k", b"c"),
    ]  # fmt: skip


def test_append_brings_columns_into_the_order_and_types_of_the_topic(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("orders", schema="id string, amount int, note string")
        data = pa.table(
            {
                "amount": pa.array([1, 2], pa.int64()),
                "id": pa.array(["a", "b"]).dictionary_encode(),
            }
        )
        with log.producer() as producer:
            producer.append("orders", data)
        assert values(log, "orders") == [
            {"id": "a", "amount": 1, "note": None},
            {"id": "b", "amount": 2, "note": None},
        ]
        (batch,) = log.read("orders")
        assert batch.data.schema.types == [pa.string(), pa.int32(), pa.string()]


def test_append_comes_after_what_was_sent_before_it(log: Log) -> None:
    log.create_topic("clicks")
    with log.producer(linger=LONG) as producer:
        producer.send("clicks", b"first")
        producer.append("clicks", pa.table({"value": ["second"]}))
    assert values(log, "clicks") == [b"first", b"second"]


@pytest.mark.parametrize("chunks", [0, 1])
def test_appending_no_rows_makes_no_commit(log: Log, chunks: int) -> None:
    log.create_topic("clicks")
    schema = pa.schema([("value", pa.binary())])
    empty = pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema)] * chunks, schema)
    with log.producer() as producer:
        receipt = producer.append("clicks", empty)
    assert (receipt.commit, receipt.acks, receipt.records) == (None, (), 0)
    with needs(log, Capability.NUMBERED_APPENDS):
        assert log.head() == 0
    assert values(log, "clicks") == []


def test_more_than_one_commit_may_hold_is_appended_in_several(log: Log) -> None:
    log.create_topic("clicks")
    column = pa.array([bytes([n]) * 1_000_000 for n in range(40)])
    with log.producer(acks="written") as producer:
        receipt = producer.append("clicks", pa.table({"value": column}))
    assert receipt.records >= 40
    found: list[Batch] = list(log.read("clicks"))
    assert len(found) > 1
    assert [bytes([n]) for n in range(40)] == [r.value[:1] for b in found for r in b.records()]


def test_appended_rows_can_be_tombstones_in_their_place(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("users", partitions=2, schema="id string, age int", key="id")
        rows = pa.table({"id": ["a", "b", "a", "b"], "age": [1, 2, None, 3]})
        with log.producer() as producer:
            producer.append("users", rows, tombstones=np.array([False, False, True, False]))
        found: dict[str, list[int | None]] = {}
        for record in read(log, "users"):
            found.setdefault(record.key, []).append(record.value and record.value["age"])
        assert found == {"a": [1, None], "b": [2, 3]}


def test_a_transaction_takes_tombstones_in_their_place(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("users", schema="id string, age int", key="id")
        rows = pa.table({"id": ["a", "b", "a"], "age": [1, 2, None]})
        with log.producer() as producer, producer.transaction() as transaction:
            transaction.append("users", rows, tombstones=np.array([False, False, True]))
        found = [
            (record.key, record.value and record.value["age"]) for record in read(log, "users")
        ]
        assert found == [("a", 1), ("b", 2), ("a", None)]


def test_tombstones_are_refused_where_there_is_no_key(log: Log) -> None:
    with needs(log, TYPED):
        log.create_topic("users", schema="id string")
        with log.producer() as producer:
            for append in (producer.append, producer.transaction().append):
                with pytest.raises(InvalidRecord, match="no key"):
                    append("users", pa.table({"id": ["a"]}), tombstones=np.array([True]))


def test_arrow_that_is_not_what_it_says_is_refused_and_nothing_is_written(log: Log) -> None:
    data = pa.py_buffer(b"a\xff")
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], data]
    )
    log.create_topic("clicks")
    with log.producer() as producer:
        for append in (producer.append, producer.transaction().append):
            with pytest.raises(InvalidRecord, match=r"'value'.*not valid Arrow: Invalid UTF8"):
                append("clicks", pa.table({"value": text}))
    assert values(log, "clicks") == []
