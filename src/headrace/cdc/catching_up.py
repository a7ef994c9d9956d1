"""Catching up the copy of rows with the topics, after a crash or when it was lost."""

from __future__ import annotations

import json

from headrace.cdc.contract import Row, Source, Table
from headrace.cdc.encoding import table_rows
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.state import CaptureState, TableState, state_topic
from headrace.log import Batch, Log, Offset
from headrace.log.declared import topic_schema

_UNFINISHED = ""
"""The mark of a copy that is being made again."""


def catch_up(
    log: Log,
    prefix: str,
    source: Source,
    copy: RowCopy,
    state: CaptureState,
) -> None:
    """Bring the copy to the last commit of a capture, or make it anew."""
    mark = state.reached.mark
    if copy.mark != mark and (copy.mark is not None or mark):
        _catch_up(log, prefix, source, copy, state)
    copy.tidy()


def _catch_up(log: Log, prefix: str, source: Source, copy: RowCopy, state: CaptureState) -> None:
    tables = {table.full_name: table for table in source.tables()}
    if not _has(log, prefix, copy):
        copy.clear()
    first = copy.mark
    reached = copy.reached()
    ends: list[tuple[str, int, int]] = _ends(log, state_topic(prefix))
    existing = log.topic_ids([table.topic for table in state.tables.values()])
    for table in state.tables.values():
        if existing.get(table.topic) != table.topic_id:
            continue  # it was deleted since, and gets a snapshot
        now = tables.get(table.name)
        if now is None or not table.is_like(now):
            now = _as_it_was(table)
        copy.add(table.topic, table.topic_id, now.columns)
        seen = 0 if table.snapshot is None else table.snapshot.generation
        for name, partition, end in _ends(log, table.topic):
            start = reached.get(name, {}).get(partition, 0)
            for batch in log.read(
                name, start=Offset(start), stop=Offset(end), partitions=[partition]
            ) if start < end else ():  # fmt: skip
                rows = _rows(source, now, batch)
                copy.commit(_UNFINISHED, [], {name: TableChanges(seen, rows)}, after=first)
                first = _UNFINISHED
            ends.append((name, partition, end))
    copy.commit(state.reached.mark, ends, {}, after=first)


def _has(log: Log, prefix: str, copy: RowCopy) -> bool:
    """True if the log has the commit that the copy is at."""
    topic = state_topic(prefix)
    next = copy.reached().get(topic, {}).get(0, 0)
    ((_, _, end),) = _ends(log, topic)
    if not copy.mark or not 0 < next <= end:
        return False
    for batch in log.read(topic, start=Offset(next - 1), stop=Offset(next)):
        for record in batch.records():
            if record.value is not None:
                return bool(json.loads(record.value).get("mark") == copy.mark)
    return False


def _ends(log: Log, topic: str) -> list[tuple[str, int, int]]:
    return [(topic, part.partition, part.end) for part in log.topic(topic).partitions]


def _as_it_was(state: TableState) -> Table:
    schema, _, name = state.name.partition(".")
    return Table(schema, name, topic_schema(state.columns), state.key)


def _rows(source: Source, table: Table, batch: Batch) -> dict[str, Row | None]:
    """The last row of each key in a batch, None where it was deleted."""
    keys = batch.data.column("key").to_pylist()
    rows = table_rows(source, table, batch.data.column("after"))
    return dict(zip(keys, rows, strict=True))
