"""Joins, each against hand-written PySpark.

`stream-stream` and `stream-table`: events/s until a join has caught up with the log. The first
joins two streams within ten minutes, the second a stream with each customer's version at its time.

`table-table`: seconds from a change of 100 rows in the log until the dependent rows of the joined
tables are stored and published, over the largest tables, against recomputing the whole join.
`table-table_100_rows_*`: the same over tables of 10 thousand, 100 thousand and 1 million rows, for
100 changed orders, and for one changed product of 100 orders; `*_growth` is the cost ratio of the
largest to the smallest, against their size ratio. `*_touching_N` is a change of one row that N
others depend on, and `*_load` the initial load. `settings` has a plan for tables of 50 million
rows, extrapolated from the measurements.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.measure import Progress, Result, report
from bench.stream_joins import StreamJoins
from bench.tables import FULL, QUICK, table_table
from headrace.runtime.session import SparkSettings, spark_session

MEMORY = "6g"
_STREAM_ROUNDS = 5


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few rows, as a smoke test."""
    sizes = QUICK if quick else FULL
    settings: dict[str, Any] = {
        "events": sizes.events,
        "customers": sizes.customers,
        "table_rows": list(sizes.rows),
        "changed_rows": sizes.change,
        "touched_rows": sizes.touched,
        "stream_rounds": min(sizes.rounds, _STREAM_ROUNDS),
        "table_rounds": sizes.rounds,
        "memory": MEMORY,
    }
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        # Spark keeps the state of a finished query for up to a minute.
        spark = spark_session(SparkSettings(memory=MEMORY), log_file=home / "spark.log")
        streams = StreamJoins(spark, home / "streams", sizes.events, sizes.customers)
        results += streams.measure(settings["stream_rounds"], progress)
        found, plan = table_table(spark, home, sizes, progress)
        results += found
        settings["table_table_plan"] = plan
    return report("joins", settings, results)
