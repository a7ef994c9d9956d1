"""Data that is sent to Spark arrives complete."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.plan.arrow_frames import frame_of
from tests.spark import shared

SOME, NONE = pa.table({"n": [1, 2, 3]}), pa.table({"n": pa.array([], pa.int64())})


@pytest.mark.parametrize(
    "parts", [[SOME], [NONE], [NONE, SOME], [SOME, NONE], [SOME, NONE, SOME, NONE, NONE, SOME]]
)
def test_an_empty_chunk_is_not_the_end_of_a_table(parts: list[pa.Table]) -> None:
    table = pa.concat_tables(parts)
    assert frame_of(shared(), table).toArrow().num_rows == table.num_rows
