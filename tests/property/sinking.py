"""Batches for a sink, made by the oracle instead of Spark: any cut takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.application.run import StepProgress
from headrace.clock import to_datetime
from headrace.log import Log
from headrace.operators.registry import operator_of
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.meaning import Pane, meaning
from headrace.operators.window.payload import Panes, PaneShapes, Regrouped
from headrace.operators.window.windows import Session, Sliding
from headrace.oracle.events import Event, events_of
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.law import Law
from headrace.plan.position import next_cut, position_at
from headrace.plan.steps import Step
from headrace.store.location import views_folder
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink
from headrace.testing import Results
from tests.property.judging import advances

_TIME = pa.timestamp("us", tz="UTC")


def sink_all(
    log: Log,
    step: Step,
    types: Mapping[str, pa.DataType],
    *,
    max_commits: int,
    crash_point: CrashPoint = nothing,
) -> Results:
    """Store the rest of the log, as a run does; `types` are those of the columns."""
    aggregation = step.computed
    assert isinstance(aggregation, Aggregation)
    times = [("window_start", _TIME), ("window_end", _TIME)]
    own = [(metadata.REVISION, pa.int64()), (metadata.ROWS, pa.int64())]
    keys = [(name, types[name]) for name in aggregation.by]
    made = [(name, types[name]) for name, _ in aggregation.aggregates]
    schema = pa.schema([*keys, *times, *made, *own])
    parts = pa.schema([*keys, *times, *own]) if isinstance(aggregation.window, Session) else None
    path = Path(views_folder(log.url)) / f"{step.app}.db"
    database = Database(path, step.app)
    producer = log.producer(id=f"{step.app}.{database.generation}")
    try:
        outbox = Outbox(database, log, producer, crash_point)
        late = pa.schema(times) if step.late else None
        sink = ViewSink(
            database, outbox, log, step, PaneShapes(schema, late, parts),
            operator_of(step.stream).keeper, changelog=True, crash_point=crash_point,
        )  # fmt: skip
        outbox.send()
        for batch in _batches(log, step, sink, schema, parts, max_commits):
            sink.store(batch)
        progress = StepProgress(step.name, sink.law, sink.frontier, 0)
    finally:
        producer.close()
        database.close()
    return Results(log, step.app, (progress,))


def _batches(
    log: Log,
    step: Step,
    sink: ViewSink,
    schema: pa.Schema,
    parts: pa.Schema | None,
    max_commits: int,
) -> Iterator[StepBatch[Panes]]:
    aggregation, (topic,) = step.computed, step.topics
    assert isinstance(aggregation, Aggregation)
    while True:
        start = sink.reached[topic].commit
        last = next_cut(log, topic, start, rows=1 << 30, commits=max_commits, upto=log.head())
        if last == start:
            return
        records = [record for batch in log.read(topic) for record in batch.records()]
        events = events_of(log.topic(topic).topic, records, advances(log, topic))
        before = meaning(aggregation, _upto(events, start))
        after = meaning(aggregation, _upto(events, last))
        changed = {
            key: pane
            for key, pane in after.panes.items()
            if key not in before.panes or before.panes[key].revision != pane.revision
        }
        rows = [_row(aggregation, key, pane) for key, pane in changed.items()]
        table = pa.Table.from_pylist(rows, schema)
        sessions = None
        if parts is not None:
            held = table.select(parts.names)
            sessions = Regrouped(held, sink.recall(held))
        end = {topic: position_at(log, topic, last)}
        law = Law(pairs=after.counted - before.counted)
        frontier = log.frontier(topic, last)
        yield StepBatch(sink.reached, end, frontier, None, None, law, Panes(table, sessions))


def _upto(events: list[Event], commit: int) -> list[Event]:
    return [event for event in events if event.commit <= commit]


def _row(aggregation: Aggregation, key: tuple[Any, ...], pane: Pane) -> dict[str, Any]:
    rows = pane.rows
    if isinstance(aggregation.window, Sliding):
        rows = [row for row in rows if row.moment == pane.end]
    return {
        **dict(zip(aggregation.by, key, strict=False)),
        "window_start": to_datetime(pane.start),
        "window_end": to_datetime(pane.end),
        **pane.result(aggregation.aggregates),
        metadata.REVISION: pane.revision,
        metadata.ROWS: len(rows),
    }
