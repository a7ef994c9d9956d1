"""Values of Kafka Connect's JSON: what they become in rows and in Arrow."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.cdc.contract import UNCHANGED
from headrace.cdc.debezium.values import column, to_arrow, to_rows
from headrace.errors import SourceError

_EPOCH = datetime(1970, 1, 1)
_MONEY = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}


def _moment(unit: str) -> dict[str, Any]:
    return {"type": "int64", "name": f"io.debezium.time.{unit}"}


@pytest.mark.parametrize(
    ("description", "value", "expected"),
    [
        ({"type": "int16"}, -2, -2),
        ({"type": "bytes"}, "AP8=", b"\x00\xff"),
        (_MONEY, "/qI=", Decimal("-3.50")),
        (_MONEY, "BQ==", Decimal("0.05")),
        (_MONEY, "/w==", Decimal("-0.01")),
        ({"type": "int32", "name": "io.debezium.time.Date"}, 19_756, date(2024, 2, 3)),
        (_moment("Timestamp"), 1, _EPOCH.replace(microsecond=1_000)),
        (_moment("MicroTimestamp"), 1, _EPOCH.replace(microsecond=1)),
        (_moment("MicroTime"), 5, 5),
        ({"type": "array"}, [1, 2], "[1,2]"),
    ],
)  # fmt: skip
def test_a_value_keeps_its_meaning_both_ways(
    description: dict[str, Any], value: Any, expected: Any
) -> None:
    field, read = column({"field": "x", **description})
    columns = pa.schema([field])
    rows = [(read(value),), None, (read(None),)]
    values = to_arrow(columns, rows)
    assert values.to_pylist() == [{"x": expected}, None, {"x": None}]
    assert to_arrow(columns, to_rows(columns, values)) == values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "__debezium_unavailable_value"),
        ("bytes", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    ],
)
def test_a_value_that_was_not_sent_is_unchanged(kind: str, value: str) -> None:
    _, read = column({"field": "x", "type": kind})
    assert read(value) is UNCHANGED


def test_a_value_that_does_not_fit_names_its_column() -> None:
    field, _ = column({"field": "small", "type": "int16"})
    with pytest.raises(SourceError, match="'small'"):
        to_arrow(pa.schema([field]), [(1 << 20,)])
