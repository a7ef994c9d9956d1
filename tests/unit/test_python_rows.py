"""Rows can be shown whatever values they have."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from headrace.log import Batch
from headrace.schema.python_rows import to_rows, unreadable_column

MOMENT = pa.timestamp("us", tz="UTC")
YEAR_20000 = 568_971_820_800_000_000
TEXT_20000 = "20000-01-01 00:00:00.000000Z"


def not_text() -> pa.Array:
    """A text column whose bytes are not text."""
    return pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )


def test_only_the_column_with_the_value_is_text() -> None:
    data = pa.table({"a": pa.array([0], MOMENT), "b": pa.array([YEAR_20000], MOMENT)})
    assert to_rows(data) == [{"a": datetime(1970, 1, 1, tzinfo=UTC), "b": TEXT_20000}]
    assert unreadable_column(data.to_batches()[0]) == "b"


def test_what_is_nested_is_text_inside() -> None:
    inner = pa.array([YEAR_20000], MOMENT)
    data = pa.table(
        {
            "list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner),
            "struct": pa.StructArray.from_arrays([inner, pa.array(["x"])], ["at", "of"]),
            "map": pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), inner),
        }
    )
    assert to_rows(data) == [
        {
            "list": [TEXT_20000],
            "struct": {"at": TEXT_20000, "of": "x"},
            "map": [("k", TEXT_20000)],
        }
    ]


def test_text_that_is_none_is_shown_with_its_bytes() -> None:
    assert to_rows(pa.table({"text": not_text()})) == [{"text": "a\\xff"}]


def test_rows_without_columns_are_counted() -> None:
    assert to_rows(pa.table({"a": [1, 2]}).select([])) == [{}, {}]


def test_a_record_whose_time_python_cannot_hold_has_the_last_time_there_is() -> None:
    times = np.array([YEAR_20000], np.int64)
    data = pa.record_batch({"key": [b"k"], "value": [b"v"]})
    batch = Batch("t", 0, np.array([7]), data, None, True, None, YEAR_20000, None, times)
    (record,), error = batch.readable()
    assert error is None
    assert (record.value, record.timestamp.year) == (b"v", 9999)
