"""Random tables to join, and batches of them without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import headrace as hr
from headrace.application.run import StepProgress
from headrace.log import Log
from headrace.operators.registry import operator_of
from headrace.operators.table_join.payload import TableChanges, TableShapes
from headrace.oracle.tables import Version
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.law import Law
from headrace.plan.position import last_commit, position_at
from headrace.plan.steps import Step
from headrace.plan.table_changes import FROM, ORDER
from headrace.store.location import database_of
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink
from headrace.testing import Results, ScriptedLog
from tests.property.scripts import BEGIN, ERAS, FAR, SECOND, moved_rows
from tests.property.tabling import changes_in

Change = tuple[str, list[dict[str, Any]]]
"""A topic, and its rows; a row with only a key is a tombstone."""

ORDERS = "id string, product string, amount int, gone boolean, at timestamp"
PRODUCTS = "id string, name string, supplier string, gone boolean, at timestamp"
SUPPLIERS = "id string, city string, gone boolean, at timestamp"
VALUES: dict[str, dict[str, list[Any]]] = {
    "orders": {"product": ["p", "p", "p", "q", "q", "r", None], "amount": [1, 2, None]},
    "products": {"name": ["pen", "ink", None], "supplier": ["p", "p", "q", None]},
    "suppliers": {"city": ["Rome", "Oslo", None]},
}
KEYS = {
    "orders": ["a", "a", "b", "b", "c", "d", "e", None],
    "products": ["p", "p", "p", "q", "q", "r", None],
    "suppliers": ["p", "p", "q", None],
}

KINDS = ("inner", "left", "right", "full", "pairs", "all pairs", "chain", "left chain", "itself")


@st.composite
def scripts(draw: Any) -> list[Change]:
    """Commits of three tables: in and out of order, with deletions, repetitions and null keys."""
    moment = BEGIN
    script: list[Change] = []
    back = st.sampled_from([0, 0, 0, 1, 20, 45, 100])
    for advance in draw(st.lists(st.sampled_from([0, 1, 10, 60]), min_size=8, max_size=24)):
        moment += advance * SECOND
        topic = draw(st.sampled_from(["orders", "orders", "products", "products", "suppliers"]))
        commit: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(1, 5))):
            key = draw(st.sampled_from(KEYS[topic]))
            if key is not None and draw(st.integers(0, 9)) == 9:
                commit.append({"key": key})
                continue
            row: dict[str, Any] = {
                name: draw(st.sampled_from(values)) for name, values in VALUES[topic].items()
            }
            row |= {
                "id": key,
                "gone": draw(
                    st.sampled_from([False, False, False, False, False, None, None, True])
                ),
            }
            row["at"] = draw(st.sampled_from([None, FAR, *[moment - draw(back) * SECOND] * 20]))
            commit += [row] * draw(st.sampled_from([1, 1, 1, 2]))
        script.append((topic, commit))
    return script


def write(log: ScriptedLog, app: hr.App, change: Change, era: timedelta = ERAS[2]) -> None:
    """Write a commit. A topic with a key has no null keys; one without has no tombstones."""
    name, commit = change
    keyed = app.topics[name].key is not None
    with log.log.producer() as producer, producer.transaction() as transaction:
        for row in moved_rows(commit, era):
            if "id" not in row and keyed:
                transaction.send(name, None, key=row["key"])
            elif "id" in row and not (keyed and row["id"] is None):
                transaction.send(name, row)
    log.pass_time(SECOND)


def declare(kind: str, partitions: int = 1, key: str | None = "id") -> tuple[hr.App, hr.TableJoin]:
    """An application with a view of joined tables. It has all topics, even unused ones."""
    app = hr.App("tables")
    parts = {"event_time": "at", "key": key, "partitions": partitions}
    orders = app.topic("orders", schema=ORDERS, **parts)  # type: ignore[arg-type]
    products = app.topic("products", schema=PRODUCTS, **parts)  # type: ignore[arg-type]
    suppliers = app.topic("suppliers", schema=SUPPLIERS, **parts)  # type: ignore[arg-type]
    first = hr.table(hr.derive(orders, n="amount * 2"), key="id", deleted="gone")
    second = hr.table(
        hr.select(products, "id", "supplier", "gone", shout="upper(name)"),
        key="id",
        deleted="gone",
    )
    third = hr.table(suppliers, key="id", deleted="gone")
    how: Any = {"pairs": "inner", "all pairs": "full", "chain": "inner", "left chain": "left"}
    how = how.get(kind, "left" if kind == "itself" else kind)
    if kind in ("pairs", "all pairs"):
        # Neither side is joined by its key: an order has many products, and a product many orders.
        step = hr.join_tables(first, second, on={"product": "supplier"}, how=how, prefix="product_")
    elif kind == "itself":
        step = hr.join_tables(second, second, on={"supplier": "id"}, how=how, prefix="of_")
    elif kind.endswith("chain"):
        step = hr.join_tables(
            first,
            second,
            third,
            on=[{"product": "id"}, {"product_supplier": "id"}],
            how=how,
            prefix=["product_", "supplier_"],
        )
    else:
        step = hr.join_tables(first, second, on={"product": "id"}, how=how, prefix="product_")
    app.view("joined", step)
    return app, step


TYPES = {
    "amount": pa.int32(),
    "n": pa.int32(),
    "gone": pa.bool_(),
    "at": pa.timestamp("us", tz="UTC"),
}


def sink_tables(
    log: Log, step: Step, *, max_commits: int, crash_point: CrashPoint = nothing
) -> Results:
    """Store the rest of the log, as a run does, with the oracle instead of Spark."""
    join = step.stream
    assert isinstance(join, hr.TableJoin)
    versions = [changes_in(table, log).versions for table in join.tables]
    schemas = tuple(map(_schema, join.tables))
    fields = [(name, TYPES.get(column, pa.string())) for name, (_, column) in join.origins.items()]
    rows = pa.schema([*fields, (metadata.REVISION, pa.int64())])
    shapes, keeper = TableShapes(rows, None, schemas), operator_of(step.stream).keeper
    database = Database(Path(database_of(log.url, step.app)), step.app)
    producer = log.producer(id=f"{step.app}.{database.generation}")
    try:
        outbox = Outbox(database, log, producer, crash_point)
        sink = ViewSink(
            database, outbox, log, step, shapes, keeper, changelog=True, crash_point=crash_point
        )
        outbox.send()
        read = {c.number for t in step.topics for c in log.commits(t, 0, 100_000)}
        while left := sorted(c for c in read if c > last_commit(sink.reached)):
            start, cut = last_commit(sink.reached), left[:max_commits][-1]
            end = {topic: position_at(log, topic, cut) for topic in step.topics}
            new = [[v for v in found if start < v.commit <= cut] for found in versions]
            tables = tuple(map(_table, join.tables, schemas, new))
            law = Law(pairs=sum(map(len, new)))
            changes = TableChanges(tables)
            sink.store(StepBatch(sink.reached, end, None, None, None, law, changes))
        progress = StepProgress(step.name, sink.law, sink.frontier, 0)
    finally:
        producer.close()
        database.close()
    return Results(log, step.app, (progress,))


def _schema(table: Table) -> pa.Schema:
    own = [(FROM, pa.int64()), *((n, metadata.TYPES[n]) for n in ORDER[1:])]
    columns = [(name, TYPES.get(name, pa.string())) for name in table.columns]
    return pa.schema([*columns, *own, (metadata.DELETED, pa.bool_())])


def _table(table: Table, schema: pa.Schema, versions: list[Version]) -> pa.Table:
    rows = [
        {
            # A row that deletes a key may have any other values.
            **(v.row or {"product": "p", "supplier": "p", "shout": "x", "amount": 7}),
            **dict(zip(table.key, v.key, strict=True)),
            FROM: v.valid,
            metadata.COMMIT: v.commit,
            metadata.PARTITION: v.partition,
            metadata.OFFSET: v.offset,
            metadata.DELETED: v.row is None,
        }
        for v in versions
    ]
    return pa.Table.from_pylist(rows, schema)
