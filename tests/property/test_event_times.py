"""Event times that are expressions: the embedded log computes them as Spark does."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.log.event_time import times_of
from headrace.log.state import Topic
from headrace.plan.arrow_frames import frame_of
from headrace.plan.kafka.event_time import or_null
from headrace.schema.ddl import parse_schema
from tests.spark import shared

SCHEMA = parse_schema(
    "at timestamp, small int, big bigint, real double, day date, text string, hour string, "
    "payload struct<at: timestamp, ms: bigint, more: struct<text: string>>"
)
EXPRESSIONS = (
    "at",
    "payload.at",
    "timestamp_seconds(small)",
    "timestamp_seconds(big)",
    "timestamp_seconds(real)",
    "timestamp_millis(big)",
    "timestamp_millis(Payload.MS)",
    "timestamp_micros(big)",
    "to_timestamp(text)",
    "to_timestamp(payload.more.text)",
    "CAST(text AS timestamp)",
    "CAST(big AS timestamp)",
    "CAST(real AS timestamp)",
    "CAST(day AS timestamp)",
    "to_timestamp(day || ' ' || hour)",
    "to_timestamp(concat(day, 'T', hour, 'Z'))",
    "to_timestamp(small || '-01-01')",
    "at - INTERVAL 1 MICROSECOND",
    "timestamp_micros(big) - INTERVAL 90 SECONDS",
    "timestamp_micros(big) + INTERVAL '2' HOUR",
    "CAST(text AS timestamp) + INTERVAL 7 MILLISECOND",
)

times = st.datetimes().map(lambda moment: pa.scalar(moment, pa.timestamp("us", "UTC")).value)
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**13), 10**13)
clocks = st.builds(
    "{}:{}:{}".format,
    st.integers(0, 25),
    st.integers(0, 61).map("{:02}".format),
    st.integers(0, 61),
) | st.builds("{:02}:{:02}".format, st.integers(0, 24), st.integers(0, 60))
days = st.builds(
    "{:04}-{}-{:02}".format, st.integers(0, 12_000), st.integers(0, 13), st.integers(0, 32)
) | st.dates().map(str)
zones = st.sampled_from(
    ["", "Z", " Z", "z", "UTC", " UTC", "GMT+1", "+02:00", "-2:30", "+0530", "+18:00", "-18:01",
     "+7", "+01:60", "+1:2", "+01:2", "+123", "CEST", "Z+1", "+"]
)  # fmt: skip
fractions = st.sampled_from(["", ".", ".5", ".123456", ".1234567", ".1234567890"])
written = st.builds("{}{}{}{}{}".format, days, st.sampled_from(" T"), clocks, fractions, zones)
# Spark reads a time without a date as today's, so all texts begin with a year.
odd = st.builds("{}{}".format, days, st.text("0123456789-:T Z+.\n", max_size=8))
texts = (
    written
    | days
    | odd
    | st.sampled_from(["", "x", "2026", " 2026-01-01 ", "now", "1794940181594"])
)
rows = st.fixed_dictionaries(
    {
        "at": st.none() | times,
        "small": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(1, 9999),
        "big": st.none() | numbers,
        "real": st.none() | st.floats() | st.floats(-1e12, 1e12),
        "day": st.none() | st.dates(date(1, 1, 1)),
        "text": st.none() | texts,
        "hour": st.none() | clocks,
        "payload": st.none()
        | st.fixed_dictionaries(
            {
                "at": st.none() | times,
                "ms": st.none() | numbers,
                "more": st.none() | st.fixed_dictionaries({"text": st.none() | texts}),
            }
        ),
    }
)


def believable(found: list[int | None]) -> list[int | None]:
    """Event times, or null outside of the years 1 to 9999: both are dead letters."""
    return [x if x is not None and FIRST_MOMENT <= x <= LAST_MOMENT else None for x in found]


@settings(max_examples=20)
@given(st.lists(rows, min_size=1, max_size=60))
def test_the_embedded_log_computes_event_times_as_spark_does(given: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(given, SCHEMA)
    frame = frame_of(shared(), pa.Table.from_batches([batch]))
    columns = [F.unix_micros(or_null(text)).alias(f"c{n}") for n, text in enumerate(EXPRESSIONS)]
    computed = frame.select(*columns).toArrow()
    for number, text in enumerate(EXPRESSIONS):
        topic = Topic("t", 1, SCHEMA, None, text)
        ours = believable(times_of(topic, batch).cast(pa.int64()).to_pylist())
        spark = believable(computed.column(f"c{number}").to_pylist())
        differ = [(row, a, b) for row, a, b in zip(given, ours, spark, strict=True) if a != b]
        assert not differ, (text, differ[0])
