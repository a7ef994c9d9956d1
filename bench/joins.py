"""Joins, each against what somebody would write in plain PySpark.

`stream-stream` and `stream-table`: events/s until a join has caught up with the log, of two streams
within ten minutes of each other, and of a stream with the version of each customer at its time.

`table-table`: seconds from a change of 100 rows in the log until the rows of joined tables that
depend on it are stored and told of, over the largest tables, against the whole join computed again.
`table-table_100_rows_*`: the same over tables of 10 thousand, 100 thousand and 1 million rows, for
100 orders that change, and for a product that 100 orders name; `*_growth` is how many times as much
the largest costs as the smallest, against how many times as large it is. `*_touching_N` is a change
of one row that N others depend on, `*_load` the first time. `settings` has a plan for tables of
50 million rows, computed from what was measured.
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
    """All results; `quick` takes few rows, to see that everything runs."""
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
        # Spark keeps the state of a query that has ended for up to a minute.
        spark = spark_session(SparkSettings(memory=MEMORY), log_file=home / "spark.log")
        streams = StreamJoins(spark, home / "streams", sizes.events, sizes.customers)
        results += streams.measure(settings["stream_rounds"], progress)
        found, plan = table_table(spark, home, sizes, progress)
        results += found
        settings["table_table_plan"] = plan
    return report("joins", settings, results)
