"""Results that come by way of files are all there, however many they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from headrace.engine.staging import stage
from tests.spark import shared


def test_many_rows_come_back_as_they_were_a_slice_at_a_time(tmp_path: Path) -> None:
    # One file, of columns that go up evenly: what Arrow could not read when it was lz4.
    rows = shared().range(0, 600_000, 1, 1)
    frame = rows.selectExpr("id", "id % 3 AS kind", "timestamp_micros(id * 5000) AS t")
    schema = pa.schema(
        [("id", pa.int64()), ("kind", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))]
    )
    staged = stage(frame, tmp_path / "rows", schema)
    slices = list(staged.slices())
    assert max(part.num_rows for part in slices) < 600_000
    assert sorted(n for part in slices for n in part.column("id").to_pylist()) == [*range(600_000)]
    assert sum(part.num_rows for part in staged.slices(ds.field("kind") == 1)) == 200_000
    staged.remove()
    assert not list(staged.slices())
