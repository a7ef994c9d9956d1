"""The changelog of a view: a topic in Debezium's envelope, so that any reader of those reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.engine import places
from headrace.engine.aside import to_json
from headrace.views.values import table_from

_SOURCE = pa.struct([("app", pa.string()), ("view", pa.string()), ("commit", pa.int64())])


def topic_of(app: str, view: str) -> str:
    """The name of a view's changelog."""
    return f"{app}.{view}.changes"


def published(schema: pa.Schema) -> pa.Schema:
    """The columns of panes as a topic has them: the revision is for everyone to see."""
    fields = [f for f in schema if f.name not in (places.REVISION, places.ROWS)]
    return pa.schema([*fields, pa.field("revision", pa.int64())])


def publish(rows: pa.Table) -> pa.Table:
    """Panes as a topic has them."""
    schema = published(rows.schema)
    columns = [rows.column(f.name) for f in schema if f.name != "revision"]
    return pa.Table.from_arrays([*columns, rows.column(places.REVISION)], schema=schema)


def envelope_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a changelog of such panes."""
    row = pa.struct(list(published(schema)))
    return pa.schema(
        [
            ("key", pa.string()),
            ("before", row),
            ("after", row),
            ("source", _SOURCE),
            ("op", pa.string()),
            ("ts_ms", pa.int64()),
        ]
    )


def changes(
    app: str,
    view: str,
    key: Sequence[str],
    rows: pa.Table,
    before: Sequence[tuple[Any, ...]] | None,
    ts_ms: int,
) -> pa.Table:
    """What happened to each pane that has changed, beside what it was before, if anything."""
    schema = envelope_schema(rows.schema)
    old = _structs(publish(table_from(before, rows.schema))) if before else None
    revisions = rows.column(places.REVISION).to_pylist()
    place = rows.schema.get_field_index(places.REVISION)
    known = [row[place] for row in before] if before else [None] * rows.num_rows
    changed = [i for i, (new, was) in enumerate(zip(revisions, known, strict=True)) if new != was]
    absent = pa.array([known[i] is None for i in changed])
    after = _structs(publish(rows)).take(pa.array(changed, pa.int64()))
    kind = schema.field("before").type
    if old is None:
        earlier = pa.nulls(len(changed), kind)
    else:
        taken = old.take(pa.array(changed, pa.int64()))
        earlier = pa.StructArray.from_arrays(taken.flatten(), fields=list(kind), mask=absent)
    keys = rows.select(list(key)).take(pa.array(changed, pa.int64()))
    count = len(changed)
    source = {"app": app, "view": view}
    return pa.Table.from_arrays(
        [
            pa.array([to_json(row) for row in keys.to_pylist()], pa.string()),
            earlier,
            after,
            pa.array([{**source, "commit": revisions[i]} for i in changed], _SOURCE),
            pa.array(["c" if known[i] is None else "u" for i in changed], pa.string()),
            pa.array([ts_ms] * count, pa.int64()),
        ],
        schema=schema,
    )


def _structs(rows: pa.Table) -> pa.StructArray:
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=list(rows.schema))
