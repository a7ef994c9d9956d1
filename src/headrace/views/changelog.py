"""The changelog of a view: a topic in Debezium's envelope, so that any reader of those reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headrace.engine import places
from headrace.engine.aside import to_json

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
    before: pa.Table | None,
    ts_ms: int,
) -> pa.Table:
    """What happened to each pane that has changed, beside what it was before, if anything."""
    if before is not None:
        changed = changed_rows(rows, before)
        rows, before = rows.filter(changed), before.filter(changed)
    return replacements(app, view, key, rows, before, ts_ms)


def replacements(
    app: str,
    view: str,
    key: Sequence[str],
    rows: pa.Table,
    before: pa.Table | None,
    ts_ms: int,
) -> pa.Table:
    """That panes are in the place of what was before, if anything was."""
    kind = envelope_schema(rows.schema).field("before").type
    if before is not None:
        absent = pc.is_null(before.column(places.REVISION).combine_chunks())
        was = _columns(publish(before))
        earlier = pa.StructArray.from_arrays(was, fields=list(kind), mask=absent)
    else:
        absent = pa.repeat(True, rows.num_rows)
        earlier = pa.nulls(rows.num_rows, kind)
    after = pa.StructArray.from_arrays(_columns(publish(rows)), fields=list(kind))
    op = pc.if_else(absent, "c", "u")
    return _envelopes(app, view, rows, key, earlier, after, op, ts_ms)


def deletions(app: str, view: str, key: Sequence[str], rows: pa.Table, ts_ms: int) -> pa.Table:
    """That panes are no more."""
    kind = envelope_schema(rows.schema).field("before").type
    before = pa.StructArray.from_arrays(_columns(publish(rows)), fields=list(kind))
    after = pa.nulls(rows.num_rows, kind)
    op = pa.repeat("d", rows.num_rows)
    return _envelopes(app, view, rows, key, before, after, op, ts_ms)


def _envelopes(
    app: str,
    view: str,
    rows: pa.Table,
    key: Sequence[str],
    before: pa.Array,
    after: pa.Array,
    op: pa.Array,
    ts_ms: int,
) -> pa.Table:
    count = rows.num_rows
    revisions = rows.column(places.REVISION).combine_chunks()
    source = pa.StructArray.from_arrays(
        [pa.repeat(app, count), pa.repeat(view, count), revisions], fields=list(_SOURCE)
    )
    return pa.Table.from_arrays(
        [
            key_texts(rows.select(list(key))),
            before,
            after,
            source,
            op,
            pa.repeat(pa.scalar(ts_ms, pa.int64()), count),
        ],
        schema=envelope_schema(rows.schema),
    )


def changed_rows(rows: pa.Table, before: pa.Table) -> pa.ChunkedArray:
    """For each pane, whether it is another than before."""
    known = before.column(places.REVISION)
    return pc.fill_null(pc.not_equal(rows.column(places.REVISION), known), True)


def key_texts(keys: pa.Table) -> pa.Array:
    """Each row as a JSON object. The usual types take no Python per row."""
    parts = [_json(column.combine_chunks()) for column in keys.columns]
    if any(part is None for part in parts):
        return pa.array([to_json(row) for row in keys.to_pylist()], pa.string())
    texts: list[Any] = []
    for name, part in zip(keys.column_names, parts, strict=True):
        texts += [f"{', ' if texts else '{'}{json.dumps(name)}: ", part]
    return pc.binary_join_element_wise(*texts, "}", "")


def _json(column: pa.Array) -> pa.Array | None:
    """A column's values as JSON; None if that is not to be had from Arrow."""
    kind = column.type
    if types.is_string(kind):
        if pc.any(pc.match_substring_regex(column, r'[\x00-\x1f"\\]')).as_py():
            return None
        text = pc.binary_join_element_wise('"', column, '"', "")
    elif types.is_timestamp(kind):
        # Many panes begin at one moment, and to write a moment takes a while.
        moments = column.dictionary_encode()
        written = pc.strftime(moments.dictionary, '"%Y-%m-%dT%H:%M:%SZ"')
        text = written.take(moments.indices)
    elif types.is_integer(kind) or types.is_boolean(kind):
        text = column.cast(pa.string())
    else:
        return None
    return pc.fill_null(text, "null")


def _columns(rows: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in rows.columns]
