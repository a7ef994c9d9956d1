"""Records written in real time have the bytes that headrace itself would write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.log import Topic
from headrace.log.kafka.rows_avro import AvroRows
from headrace.log.kafka.rows_bytes import BytesRows
from headrace.log.kafka.rows_json import JsonRows
from headrace.log.partitioner import key_bytes
from headrace.log.settings import TopicSettings
from headrace.plan.arrow_frames import frame_of
from headrace.plan.steps import Step, steps_of
from headrace.runtime.realtime.outlets import Outlet
from headrace.schema.ddl import parse_schema
from tests.spark import shared

NOON = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)

COLUMNS = (
    "page string, raw binary, yes boolean, tiny tinyint, small smallint, n int, big bigint, "
    "half float, whole double, cost decimal(10,2), fine decimal(20,9), day date, at timestamp, "
    "seen timestamp_ntz, tags array<string>, sizes map<string, int>, "
    "place struct<name: string, cost: decimal(10,2)>"
)
ROWS: list[dict[str, Any]] = [
    {
        "page": "grün", "raw": b"\xff\x00", "yes": True, "tiny": -3, "small": -300, "n": 7,
        "big": -(2**40), "half": 0.5, "whole": -0.1, "cost": Decimal("-1.10"),
        "fine": Decimal("0.000000001"), "day": date(1969, 12, 31), "at": NOON,
        "seen": datetime(1950, 1, 1, 0, 0, 0, 1), "tags": ["x", None], "sizes": {"a": 1, "b": None},
        "place": {"name": None, "cost": Decimal("2.00")},
    },
    {
        "page": "", "raw": b"", "yes": False, "tiny": 127, "small": 0, "n": -(2**31), "big": 0,
        "half": -1.5, "whole": 1e300, "cost": Decimal("0.00"), "fine": Decimal(5),
        "day": date(2026, 1, 31), "at": datetime(1950, 1, 1, tzinfo=UTC), "seen": None,
        "tags": None, "sizes": {}, "place": None,
    },
]  # fmt: skip


def step() -> Step:
    app = hr.App("shop")
    visits = app.topic("visits", schema="page string, at timestamp", event_time="at")
    app.publish("out", visits)
    (made,) = steps_of(app)
    return made


def topic(columns: str, key: str | None = None, partitions: int = 1, **settings: Any) -> Topic:
    found = TopicSettings().change(settings)
    return Topic("out", partitions, parse_schema(columns), key, None, found)


def written(there: Topic, columns: str, rows: Sequence[dict[str, Any]]) -> list[Row]:
    """The result of writing rows with these columns to an existing topic."""
    spark, schema = shared(), parse_schema(columns)
    kinds = StructType.fromDDL(columns)
    assert isinstance(kinds, StructType)
    frame = frame_of(spark, pa.Table.from_pylist(list(rows), schema), kinds)
    names = [F.col(name) for name in schema.names]
    record = Outlet(step(), "out", {"out": there}).record(schema, names, F.lit(5))
    return frame.select(record.alias("record")).select("record.*").collect()


def batch(columns: str, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), parse_schema(columns))


@pytest.mark.parametrize(
    "key", ["page", "raw", "yes", "tiny", "small", "n", "big", "cost", "day", "at"]
)
def test_a_key_has_the_bytes_by_which_headrace_chooses_a_partition(key: str) -> None:
    expected = key_bytes(batch(COLUMNS, ROWS).column(key)).to_pylist()
    records = written(topic(COLUMNS, key, 4), COLUMNS, ROWS)
    assert [bytes(record.key) for record in records] == expected
    # The producer chooses the partition by the same hash.
    assert [record.partition for record in records] == [None, None]


def test_a_key_of_a_time_without_a_zone_is_its_long_too() -> None:
    expected = key_bytes(batch(COLUMNS, ROWS[:1]).column("seen")).to_pylist()
    (record,) = written(topic(COLUMNS, "seen"), COLUMNS, ROWS[:1])
    assert [bytes(record.key)] == expected


def test_avro_is_written_as_headrace_writes_it() -> None:
    records = written(topic(COLUMNS, format="avro"), COLUMNS, ROWS)
    schema = parse_schema(COLUMNS)
    assert [bytes(record.value) for record in records] == AvroRows(schema).encode(
        batch(COLUMNS, ROWS)
    )
    assert {record.key for record in records} == {None}


@pytest.mark.parametrize("format", ["avro", "json"])
def test_columns_are_as_the_topic_has_them_in_its_order_and_the_others_are_null(
    format: str,
) -> None:
    there = (
        "more string, cost decimal(12,2), n bigint, page string not null, tags array<bigint>, "
        "place struct<name: string not null, cost: double>"
    )
    given = (
        "page string, n int, tags array<int>, cost decimal(10,2), "
        "place struct<name: string, cost: float not null>"
    )
    place = {"name": "b", "cost": 0.5}
    rows = [{"page": "a", "n": 7, "tags": [1, None], "cost": Decimal("1.10"), "place": place}]
    (record,) = written(topic(there, "page", format=format), given, rows)
    read = (AvroRows if format == "avro" else JsonRows)(parse_schema(there))
    columns = read.decode([bytes(record.value)], set())
    found = dict(zip(parse_schema(there).names, (c[0].as_py() for c in columns), strict=True))
    assert found == {**rows[0], "more": None}
    assert bytes(record.key) == b"a"


def test_bytes_are_written_as_they_are() -> None:
    there = "line string not null, at timestamp"
    rows = [{"line": "grün", "at": NOON}]
    (record,) = written(topic(there, format="bytes", missing_time="arrival"), there, rows)
    schema = parse_schema(there)
    assert [bytes(record.value)] == BytesRows(schema).encode(batch(there, rows))


def test_rows_without_a_key_stay_in_the_order_of_the_partition_they_come_from() -> None:
    several = written(topic("page string", None, 3), "page string", ROWS)
    assert [record.partition for record in several] == [5 % 3, 5 % 3]
    one = written(topic("page string"), "page string", ROWS)
    assert [record.partition for record in one] == [None, None]


@pytest.mark.parametrize(
    ("there", "key", "why"),
    [
        ("page string, half float", "half", "the key of 'out', in other bytes than headrace"),
        ("page string, fine decimal(20,9)", "fine", r"it is decimal\(20,9\)"),
        ("page string, more string", "more", "it does not write 'more', the key of 'out'"),
        ("page string, more int not null", None, "'more', which is never null in 'out'"),
        ("page int", None, "its 'page' is string, and in topic 'out' it is int"),
        ("n smallint", None, "its 'n' is int, and in topic 'out' it is smallint"),
        ("cost decimal(10,4)", None, r"in topic 'out' it is decimal\(10,4\)"),
        ("tags array<int>", None, "its 'tags' is array<string>"),
        ("place struct<name: string>", None, "its 'place' is struct"),
    ],
)
def test_what_a_topic_cannot_be_given_is_refused_before_a_row_is_read(
    there: str, key: str | None, why: str
) -> None:
    with pytest.raises(InvalidPipeline, match=why) as refusal:
        written(topic(there, key), COLUMNS, ROWS)
    assert "Step 'out' cannot run in real time" in refusal.value.message
    assert "Publish to a topic of another name" in refusal.value.hint


def test_a_compacted_topic_without_a_key_is_refused() -> None:
    there = topic("page string", cleanup="compact")
    with pytest.raises(InvalidPipeline, match="'out' is compacted and has no key"):
        Outlet(step(), "out", {"out": there})


@pytest.mark.parametrize(
    ("there", "key", "why"),
    [
        ("page string", "page", "has no key, and the topic has the key 'page'"),
        ("page string not null", None, "'page' of topic 'out' is not null, and a row has a null"),
    ],
)
def test_a_row_that_a_topic_must_not_have_stops_the_step(
    there: str, key: str | None, why: str
) -> None:
    with pytest.raises(PySparkException, match=why):
        written(topic(there, key), "page string", [{"page": None}])
