"""Rows that Spark tasks write to Kafka: each once, and nothing of a failed task."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.clock import SECOND, SystemClock
from headrace.errors import InvalidRecord
from headrace.log import Log, open_log
from headrace.log.kafka.address import parse_address
from headrace.plan import metadata
from headrace.runtime.kafka.outlet import Outlet
from headrace.servers.kafka import ClusterState

pytestmark = pytest.mark.service


@pytest.fixture
def log(broker: ClusterState) -> Iterator[Log]:
    with open_log(broker.url) as made:
        yield made


@pytest.fixture
def out(log: Log) -> str:
    return log.create_topic(f"out-{uuid.uuid4().hex}", schema="n bigint").name


def rows(*offsets: int, partition: int = 0, column: str = "n") -> pa.RecordBatch:
    """Rows of a partition, each with its offset as its value."""
    return pa.RecordBatch.from_pydict(
        {
            column: pa.array(offsets, pa.int64()),
            metadata.TOPIC: pa.array(["in"] * len(offsets)),
            metadata.PARTITION: pa.array([partition] * len(offsets), pa.int32()),
            metadata.OFFSET: pa.array(offsets, pa.int64()),
        }
    )


def slowly(*batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Batches, each after the previous one is on its way to the broker."""
    for batch in batches:
        yield batch
        SystemClock().sleep(SECOND // 2)


def deliver(
    log: Log, out: str, commit: int, *batches: pa.RecordBatch, slow: bool = False
) -> list[int]:
    """Write rows as a task does; returns the row counts that it reports."""
    outlet = Outlet(parse_address(log.url), out, f"app.{out}", commit)
    reports = outlet(slowly(*batches) if slow else iter(batches))
    return [number for batch in reports for number in batch.column("rows").to_pylist()]


def written(log: Log, out: str) -> list[int]:
    return [n for batch in log.read(out) for n in batch.data.column("n").to_pylist()]


def test_rows_that_come_again_are_written_once_however_they_are_cut(log: Log, out: str) -> None:
    assert deliver(log, out, 1, rows(0, 1), rows(2, 3)) == [4]
    assert deliver(log, out, 1, rows(0, 1), rows(2, 3)) == [4]
    assert written(log, out) == [0, 1, 2, 3]
    assert deliver(log, out, 2, rows(2, 3, 4), rows(5)) == [4]
    assert deliver(log, out, 2, rows(0, partition=1)) == [1], "of another partition"
    assert deliver(log, out, 2, rows(2, 3, 4), rows(5)) == [4]
    assert deliver(log, out, 3, rows(), rows(6)) == [1]
    assert written(log, out) == [0, 1, 2, 3, 4, 5, 0, 6]


def test_what_fails_leaves_nothing_and_hides_nothing(log: Log, out: str) -> None:
    with pytest.raises(InvalidRecord):
        deliver(log, out, 1, rows(0), rows(1, column="m"), slow=True)
    assert deliver(log, out, 1, rows(0, partition=1)) == [1]
    assert written(log, out) == [0], "of the other partition"
    assert deliver(log, out, 1, rows(0), rows(1)) == [2]
    assert written(log, out) == [0, 0, 1]
