"""The same aggregations by DuckDB in one pass over all data: an upper bound for the machine."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log import open_log


def count(log: str, topic: str, *, size: int, every: int) -> int:
    """Count the rows of a topic by url and window, and return the sum of all counts."""

    def rows() -> Iterator[pa.RecordBatch]:
        with open_log(log, create=False) as opened:
            for batch in opened.read(topic, columns=["url", "at"]):
                yield batch.data

    schema = pa.schema([("url", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    events = pa.RecordBatchReader.from_batches(schema, rows())
    windows = ", ".join(f"({back})" for back in range(0, size, every))
    db = duckdb.connect()
    db.register("events", events)
    panes = db.sql(
        f"""
        SELECT url, epoch_us("at") // {every}000000 * {every} - back AS start, count(*) AS hits
        FROM events, (VALUES {windows}) AS w(back)
        GROUP BY ALL
        """
    ).to_arrow_table()
    db.close()
    return int(pc.sum(panes.column("hits")).as_py())
