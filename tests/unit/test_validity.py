"""Validity intervals of versions, computed on the columns of a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.table_lookup.lookup import SINCE, UNTIL, validity
from headrace.plan import metadata
from headrace.plan.table_changes import FROM, ORDER

NAN = float("nan")


def table(keys: list[Any], since: list[int | None], type: pa.DataType | None = None) -> pa.Table:
    """Versions, each with a commit of its own."""
    count = len(keys)
    return pa.table(
        {
            "k": pa.array(keys, type or pa.string()),
            FROM: pa.array(since, pa.int64()),
            metadata.COMMIT: pa.array(range(1, count + 1), pa.int64()),
            metadata.PARTITION: pa.array([0] * count, pa.int32()),
            metadata.OFFSET: pa.array(range(count), pa.int64()),
        }
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 9)), max_size=12
    ),
    st.sampled_from(["a", "b", "c"]),
    st.integers(-1, 10),
)
def test_the_span_a_moment_is_in_is_of_the_last_version_before_it(
    made: list[tuple[str, int | None]], key: str, moment: int
) -> None:
    rows = table([k for k, _ in made], [since for _, since in made])
    found = [
        row
        for row in validity(rows, ["k"]).to_pylist()
        if row["k"] == key and row[SINCE] <= moment < row[UNTIL]
    ]
    known = [
        row
        for row in rows.to_pylist()
        if row["k"] == key and row[FROM] is not None and row[FROM] <= moment
    ]
    last = sorted(known, key=lambda row: [row[name] for name in ORDER])[-1:]
    assert [row[metadata.COMMIT] for row in found] == [row[metadata.COMMIT] for row in last]


def test_the_latest_of_a_key_is_the_last_in_order_known_when_or_not() -> None:
    rows = table(["a", "a", "b", "a"], [5, 9, None, 7])
    latest = validity(rows, ["k"], latest=True)
    assert dict(zip(*(latest.column(n).to_pylist() for n in ("k", FROM)), strict=True)) == {
        "a": 9,
        "b": None,
    }


@pytest.mark.parametrize("keys", [[NAN, NAN], [0.0, -0.0], [True, True], [b"", b""]])
def test_keys_that_are_equal_to_spark_are_one(keys: list[Any]) -> None:
    kind = pa.float64() if isinstance(keys[0], float) else None
    rows = table(keys, [1, 2], kind or pa.array(keys).type)
    assert validity(rows, ["k"]).column(UNTIL).to_pylist()[0] == 2
