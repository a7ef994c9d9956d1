"""An independent recount: SQL over the rows in the log's segments.

It shares no code with headrace's reader and engine. It opens the files as the log format documents
them, computes each commit's frontier from the rows before it, and applies the lateness rule of
docs/concepts/event-time.md.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import apsw
import duckdb
import pyarrow as pa

from headrace.sqlite import Link, connect

_PATIENCE = 10.0

Pane = tuple[str, int]
"""A URL and the start of its window, in microseconds."""


@dataclass(frozen=True)
class Rule:
    """The rule for counting a row, in microseconds."""

    window: int
    delay: int
    grace: int
    skew: int


@dataclass(frozen=True)
class Recount:
    """The expected outcome of every row."""

    rows: int
    dead: int
    hits: dict[Pane, int]
    late: Counter[tuple[str, str, int]]

    @property
    def counted(self) -> int:
        return sum(self.hits.values())


_JUDGE = """
CREATE TEMP TABLE views AS
SELECT url, "user", epoch_us("at") AS moment, number, time FROM stored WHERE NOT _tombstone;

CREATE TEMP TABLE frontiers AS
SELECT
    number,
    max(newest) OVER (
        ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS frontier
FROM (
    SELECT number, max(moment) FILTER (WHERE moment <= time + $skew) AS newest
    FROM views GROUP BY number
);

CREATE TEMP TABLE judged AS
SELECT
    url, "user", moment, moment // $window * $window AS start,
    CASE
        WHEN moment IS NULL OR moment > time + $skew THEN 'dead'
        WHEN start + $window + $grace <= frontier - $delay THEN 'late'
        ELSE 'counted'
    END AS fate
FROM views JOIN frontiers USING (number);
"""


def recount(folder: Path, topic: str, rule: Rule) -> Recount:
    """Count the page views of a topic per URL and window."""
    with duckdb.connect() as db:
        db.register("stored", stored_rows(folder, topic))
        for statement in _JUDGE.strip().split(";")[:-1]:
            wanted = {n: v for n, v in vars(rule).items() if f"${n}" in statement}
            db.execute(statement, wanted)
        fates = dict(db.execute("SELECT fate, count(*) FROM judged GROUP BY fate").fetchall())
        hits = db.execute(
            "SELECT url, start, count(*) FROM judged WHERE fate = 'counted' GROUP BY url, start"
        ).fetchall()
        late = db.execute(
            """SELECT url, "user", moment FROM judged WHERE fate = 'late'"""
        ).fetchall()
    return Recount(
        sum(fates.values()),
        fates.get("dead", 0),
        {(url, start): count for url, start, count in hits},
        Counter(late),
    )


def late_rows(folder: Path, topic: str) -> Counter[tuple[str, str, int]]:
    """The page views in a topic of late events."""
    stored = stored_rows(folder, topic)
    if not stored.num_rows:
        return Counter()
    with duckdb.connect() as db:
        db.register("stored", stored)
        found = db.execute("""SELECT url, "user", epoch_us("at") FROM stored""").fetchall()
    return Counter(found)


def stored_rows(folder: Path, topic: str) -> pa.Table:
    """The rows in a topic's segments, each with its commit's `number` and `time`."""

    def connected() -> apsw.Connection:
        file = str(folder / "catalog.db")
        return connect(file, _PATIENCE, flags=apsw.SQLITE_OPEN_READONLY)

    link = Link("The log", connected, patience=_PATIENCE)
    with contextlib.closing(link), link as catalog:
        chunks = list(
            catalog.execute(
                "SELECT t.id, c.partition, c.segment, c.position, c.length, c.number, m.time "
                "FROM chunk c JOIN topic t ON t.id = c.topic JOIN commits m ON m.number = c.number "
                "WHERE t.name = ? ORDER BY c.number",
                (topic,),
            )
        )
    files: dict[Path, tuple[pa.Buffer, pa.Schema]] = {}
    tables = []
    for topic_id, partition, segment, position, length, number, time in chunks:
        path = folder / "segments" / f"{topic_id:06}-{partition:05}-{segment:010}.arrows"
        if path not in files:
            content = pa.memory_map(str(path)).read_buffer()
            files[path] = content, pa.ipc.open_stream(content).schema
        content, schema = files[path]
        message = pa.ipc.read_message(content.slice(position, length))
        rows = pa.Table.from_batches([pa.ipc.read_record_batch(message, schema)])
        place = {"number": number, "time": time}
        for name, value in place.items():
            rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.int64()))
        tables.append(rows)
    return pa.concat_tables(tables) if tables else pa.table({})
