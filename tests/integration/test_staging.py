"""Results that Spark hands over in files are complete, however many there are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from headrace.plan.staging import stage
from tests.spark import shared


def test_many_rows_come_back_as_they_were_a_slice_at_a_time(tmp_path: Path) -> None:
    rows = shared().range(0, 600_000, 1, 1)
    frame = rows.selectExpr("id", "id % 3 AS kind", "timestamp_micros(id * 5000) AS t")
    schema = pa.schema(
        [("id", pa.int64()), ("kind", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))]
    )
    staged = stage(frame, tmp_path / "rows", schema)
    slices = list(staged.slices())
    assert max(part.num_rows for part in slices) < 600_000
    assert sorted(n for part in slices for n in part.column("id").to_pylist()) == [*range(600_000)]
    assert sum(part.num_rows for part in staged.slices(pc.field("kind") == 1)) == 200_000
    staged.remove()
    assert not (tmp_path / "rows").exists()


def test_what_the_counters_of_a_frame_counted_is_told_with_it(tmp_path: Path) -> None:
    frame = shared().range(0, 1_000, 1, 3).observe("seen", F.count(F.lit(1)).alias("n"))
    staged = stage(
        frame.where("id % 2 = 0"), tmp_path / "r", pa.schema([("id", pa.int64())]), ("seen",)
    )
    assert staged.counts == {"seen": 1_000}
    assert sum(part.num_rows for part in staged.slices()) == 500


def test_there_may_be_no_rows_and_names_may_be_odd(tmp_path: Path) -> None:
    schema = pa.schema([("a.b", pa.int64())])
    frame = shared().range(0, 5).selectExpr("id AS `a.b`")
    assert sum(len(part) for part in stage(frame, tmp_path / "r", schema).slices()) == 5
    assert not list(stage(frame.where("false"), tmp_path / "r", schema).slices())
