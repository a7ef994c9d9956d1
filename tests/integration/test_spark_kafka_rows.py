"""Rows on Kafka, decoded by Spark into the same values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import functions as F

from headrace.log.kafka.rows_json import JsonRows
from headrace.schema.ddl import format_schema, parse_schema
from tests.spark import shared

SCHEMA = parse_schema(
    "text string, tiny tinyint, long bigint, half float, real double, odd double, flag boolean, "
    "at timestamp, old timestamp, local timestamp_ntz, day date, money decimal(38,18), raw binary, "
    "list array<decimal(10,2)>, map map<string, double>, "
    "place struct<at: timestamp, raw: binary, tags: array<string>>"
)
ROW = {
    "text": 'é "quoted"\n\u2028',
    "tiny": -128,
    "long": -(2**63),
    "half": 0.5,
    "real": 0.1,
    "odd": float("-inf"),
    "flag": True,
    "at": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    "old": datetime(1, 1, 1, tzinfo=UTC),
    "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "day": date(1, 1, 1),
    "money": Decimal("12345678901234567890.123456789012345678"),
    "raw": bytes(range(256)),
    "list": [Decimal("1.10"), None],
    "map": [("a", float("inf")), ("b", None)],
    "place": {"at": datetime(2026, 1, 31, tzinfo=UTC), "raw": b"", "tags": ["x", None]},
}


def test_spark_reads_rows_as_they_are() -> None:
    given = pa.RecordBatch.from_pylist([ROW, dict.fromkeys(ROW)], SCHEMA)
    values = pa.table({"value": pa.array(JsonRows(SCHEMA).encode(given), pa.binary())})
    frame = shared().createDataFrame(values)
    read = F.from_json(F.col("value").cast("string"), format_schema(SCHEMA))
    found = frame.select(read.alias("row")).select("row.*").toArrow()
    assert found.cast(SCHEMA).to_pylist() == given.to_pylist()
