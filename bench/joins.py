"""Joins, each against what somebody would write in plain PySpark.

`table-table_*`: seconds from a change in the log until the rows of joined tables that depend on it
are stored and told of, over tables of 10 thousand, 100 thousand and 1 million rows, against the
whole join computed again; `*_growth` is how many times as much the largest costs as the smallest,
against how many times as large it is. `touching_N` is a change that N rows depend on.
`settings` has a plan for tables of 50 million rows, computed from what was measured.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.measure import Progress, Result, report
from bench.tables import FULL, QUICK, table_table
from headrace.engine.session import spark_session


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """All results; `quick` takes few rows, to see that everything runs."""
    sizes = QUICK if quick else FULL
    settings: dict[str, Any] = {
        "table_rows": list(sizes.rows),
        "changed_rows": sizes.change,
        "touched_rows": sizes.touched,
        "rounds": sizes.rounds,
    }
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        spark = spark_session(log_file=home / "spark.log")
        # Here goes stream_stream(spark, home, ...): results of streams joined with streams.
        # Here goes stream_table(spark, home, ...): results of streams looked up in tables.
        found, plan = table_table(spark, home, sizes, progress)
        results += found
        settings["table_table_plan"] = plan
    return report("joins", settings, results)
