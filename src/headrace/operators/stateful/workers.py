"""Visits of buckets in Spark's workers: rows are packed by bucket, with one visit per batch.

Spark passes rows to stateful Python one by one. So each of them is a whole table in Arrow's format,
and the state store keeps a bucket in the same way. Spark's workers import this module, so it does
not import declarations, which load slowly.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from headrace.operators.stateful.bisect import Failed, Stopped
from headrace.operators.stateful.bucket import TIMER, Rules, visit
from headrace.operators.stateful.spread import labels
from headrace.plan import arrow_files, metadata
from headrace.plan.log_rows import opened
from headrace.plan.position import batch_end, lowest_frontier
from headrace.schema.keys import first_of_each
from headrace.schema.python_rows import to_rows

BUCKET, PAYLOAD = "_bucket", "_payload"
PACKED = StructType().add(BUCKET, IntegerType()).add(PAYLOAD, BinaryType())
REPORT = (
    StructType()
    .add("bucket", IntegerType())
    .add("taken", LongType())
    .add("output", StringType())
    .add("failures", StringType())
    .add("failed", LongType())
    .add("state_rows", LongType())
    .add("state_bytes", LongType())
    .add("error", StringType())
)
"""The report of a visit: the files it has written, and the rows it accounts for."""

REASON = "_reason"

_VALUE = StructType().add("value", BinaryType())
_PACK_ROWS = 131_072
_FILE_ROWS = 50_000
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class Pack:
    """Packs the rows of a task into tables, at least an empty one for each bucket.

    The empty ones make sure that every bucket is visited, even if only time has advanced.
    """

    schema: pa.Schema
    buckets: int
    time: str | None
    """The event-time column, if there is one."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield self._packed(range(self.buckets), [b""] * self.buckets)
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _PACK_ROWS:
                yield self._split(waiting)
                waiting, rows = [], 0
        if rows:
            yield self._split(waiting)

    def _split(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        whole = pa.concat_batches(batches)
        buckets = whole.column(0).to_numpy(zero_copy_only=False)
        order = np.argsort(buckets, kind="stable")
        columns = [self._column(whole, field) for field in self.schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema).take(pa.array(order))
        cuts = [*first_of_each(buckets[order]).tolist(), len(order)]
        runs = list(itertools.pairwise(cuts))
        payloads = [rows.slice(a, b - a).serialize().to_pybytes() for a, b in runs]
        return self._packed([int(buckets[order[a]]) for a, _ in runs], payloads)

    def _column(self, rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
        own = self.time if field.name == metadata.TIME and self.time is not None else field.name
        return rows.column(own).cast(field.type)

    def _packed(self, buckets: Iterable[int], payloads: list[bytes]) -> pa.RecordBatch:
        numbers = [labels(self.buckets)[bucket] for bucket in buckets]
        columns = [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, names=[BUCKET, PAYLOAD])


@dataclass(frozen=True)
class Site:
    """The surroundings of a step: its log, checkpoint and output folder, delay and limit."""

    log: str
    checkpoint: str
    folder: str
    delay: int
    most_bytes: int
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The settings of the log's address."""

    def watermark(self) -> int | None:
        """The watermark at the end of the current batch, from the log and not from Spark."""
        context = TaskContext.get()
        number = context.getLocalProperty(_BATCH) if context is not None else None
        if number is None:
            raise RuntimeError("no batch is running")
        frontier = lowest_frontier(
            opened(self.log, self.settings), batch_end(Path(self.checkpoint), int(number))
        )
        return None if frontier is None else frontier - self.delay


class Visitor(StatefulProcessor):
    """Visits the buckets of a task, with their state from Spark's state store."""

    def __init__(self, rules: Rules, site: Site) -> None:
        self._rules = rules
        self._site = site

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", _VALUE)
        self._held = handle.getValueState("held", _VALUE)
        self._watermark: int | None = None
        self._asked = False

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        rules, (bucket,) = self._rules, key
        if not self._asked:
            self._watermark, self._asked = self._site.watermark(), True
        arrived = _together([row[PAYLOAD] for row in rows if row[PAYLOAD]], rules.rows)
        kept, held = _Kept(self._kept, rules.kept), _Kept(self._held, rules.rows)
        try:
            made = visit(rules, kept.table, held.table, arrived, self._watermark)
            most, keys = self._site.most_bytes, rules.signature.keys
            kept.write(made.kept, "state", bucket, most, keys)
            held.write(made.held, "waiting rows", bucket, most, keys)
        except Stopped as stopped:
            error = json.dumps(_failure(rules, stopped))
            yield Row(**_NOTHING, bucket=bucket, error=error)
            return
        except _TooMuch as much:
            yield Row(**_NOTHING, bucket=bucket, error=str(much))
            return
        folder = Path(self._site.folder)
        output = _written(folder, made.outputs, rules.signature.output)
        failures = _written(folder, _failures(rules, made.failed), failed_schema(rules))
        yield Row(
            bucket=bucket,
            taken=arrived.num_rows,
            output=output,
            failures=failures,
            failed=sum(one.rows.num_rows for one in made.failed),
            state_rows=made.kept.num_rows + made.held.num_rows,
            state_bytes=kept.size + held.size,
            error="",
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""


_NOTHING = {
    "taken": 0, "output": "", "failures": "", "failed": 0, "state_rows": 0, "state_bytes": 0
}  # fmt: skip


class _Kept:
    """A table of a bucket, stored as one value in Spark's state store."""

    def __init__(self, place: Any, schema: pa.Schema) -> None:
        self._place = place
        found = place.get()
        value = b"" if found is None else bytes(found[0])
        self.size = len(value)
        self.table = (
            pa.ipc.open_stream(pa.py_buffer(value)).read_all() if value else schema.empty_table()
        )

    def write(
        self, now: pa.Table, what: str, bucket: int, most: int, keys: tuple[str, ...]
    ) -> None:
        """Write a new table, unless it is unchanged."""
        if now is self.table or not (now.num_rows or self.size):
            return
        if not now.num_rows:
            self._place.clear()
            self.size = 0
            return
        value = _bytes(now)
        self.size = len(value)
        if self.size > most:
            report = {"bucket": bucket, "what": what, "bytes": self.size, "rows": now.num_rows}
            report |= _hottest(now, keys)
            raise _TooMuch(json.dumps(report))
        self._place.update((value,))


def _hottest(rows: pa.Table, keys: tuple[str, ...]) -> dict[str, Any]:
    """The key with the most rows, and their number."""
    counts = rows.select(list(keys)).group_by(list(keys)).aggregate([([], "count_all")])
    (first,) = to_rows(counts.sort_by([("count_all", "descending")]).slice(0, 1))
    return {"of_key": first.pop("count_all"), "key": {k: str(v) for k, v in first.items()}}


class _TooMuch(Exception):
    """A bucket that exceeds the limit."""


def failed_schema(rules: Rules) -> pa.Schema:
    """The columns of failed rows."""
    return rules.rows.append(pa.field(REASON, pa.string()))


def _failures(rules: Rules, failed: list[Failed]) -> list[pa.Table]:
    found = []
    for one in failed:
        rows = one.rows if one.rows.num_rows else _of_timer(rules, one.state)
        reason = pa.array([_reason(one)] * rows.num_rows, pa.string())
        found.append(rows.append_column(pa.field(REASON, pa.string()), reason))
    return found


def _of_timer(rules: Rules, state: pa.Table) -> pa.Table:
    """The row for a failed timer: the key and the time, without a position in the log."""
    names = rules.signature.keys
    made = {name: state.column(name) for name in names}
    made[metadata.TIME] = state.column(TIMER).cast(pa.int64())
    nulls = pa.nulls(state.num_rows)
    columns = [made.get(f.name, nulls).cast(f.type) for f in rules.rows]
    return pa.Table.from_arrays(columns, schema=rules.rows)


def _reason(failed: Failed) -> str:
    where = f" at {failed.failure.where}" if failed.failure.where else ""
    timer = "" if failed.rows.num_rows else "its timer: "
    return f"{timer}{failed.failure.reason}{where}"


def _failure(rules: Rules, stopped: Stopped) -> dict[str, Any]:
    """A failure as plain data."""
    failed = stopped.failed
    row = {name: str(values[0]) for name, values in failed.rows.slice(0, 1).to_pydict().items()
           if values}  # fmt: skip
    state = failed.state.slice(0, 1).to_pydict()
    return {
        "reason": failed.failure.reason,
        "where": failed.failure.where,
        "row": row,
        "rows": failed.rows.num_rows,
        "state": {name: str(values[0]) for name, values in state.items() if values},
        "many": stopped.many,
    }


def _written(folder: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> str:
    """Write tables to a file; return its path, or an empty string without rows."""
    rows = pa.concat_tables([schema.empty_table(), *tables])
    return str(arrow_files.write(folder, rows.to_batches(_FILE_ROWS)) or "")


def _together(payloads: list[bytes], schema: pa.Schema) -> pa.Table:
    batches = [pa.ipc.read_record_batch(pa.py_buffer(payload), schema) for payload in payloads]
    return pa.Table.from_batches(batches, schema)


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())
