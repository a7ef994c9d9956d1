"""An independent recount of the rows in the log's segments.

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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sqlite import Link, connect

_PATIENCE = 10.0
_LONG_AGO = -(1 << 62)

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


def recount(folder: Path, topic: str, rule: Rule) -> Recount:
    """Count the page views of a topic per URL and window."""
    stored = stored_rows(folder, topic)
    if not stored.num_rows:
        return Recount(0, 0, {}, Counter())
    stored = stored.filter(pc.invert(stored.column("_tombstone")))
    moments = stored.column("at").cast(pa.int64())
    there = moments.is_valid().to_numpy()
    times = moments.fill_null(0).to_numpy()
    numbers, arrived = (stored.column(name).to_numpy() for name in ("number", "time"))
    good = there & (times <= arrived + rule.skew)
    # Rows are in the order of their commits: a row meets the highest time of all commits before.
    highest = np.maximum.accumulate(np.where(good, times, _LONG_AGO))
    first = np.searchsorted(numbers, numbers)
    frontier = np.where(first > 0, highest[first - 1], _LONG_AGO)
    start = times // rule.window * rule.window
    late = good & (start + rule.window + rule.grace <= frontier - rule.delay)
    urls, users = (stored.column(name).to_pylist() for name in ("url", "user"))
    hits = Counter((urls[row], int(start[row])) for row in np.flatnonzero(good & ~late))
    return Recount(
        len(times),
        int(np.count_nonzero(~good)),
        dict(hits),
        Counter((urls[row], users[row], int(times[row])) for row in np.flatnonzero(late)),
    )


def late_rows(folder: Path, topic: str) -> Counter[tuple[str, str, int]]:
    """The page views in a topic of late events."""
    stored = stored_rows(folder, topic)
    if not stored.num_rows:
        return Counter()
    moments = stored.column("at").cast(pa.int64())
    columns = (stored.column("url"), stored.column("user"), moments)
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


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
        for name, value in (("number", number), ("time", time)):
            rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.int64()))
        tables.append(rows)
    return pa.concat_tables(tables) if tables else pa.table({})
