"""The changelog of a view: a topic in Debezium's envelope, which many tools read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.conform import row_sizes
from headrace.log.dead_letter import row_text
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.plan import metadata
from headrace.schema import json_text
from headrace.schema.python_rows import to_values

_SOURCE = pa.struct([("app", pa.string()), ("view", pa.string()), ("commit", pa.int64())])


def topic_of(app: str, view: str) -> str:
    """The name of a view's changelog."""
    return f"{app}.{view}.changes"


def published(schema: pa.Schema) -> pa.Schema:
    """The columns of published panes: with the revision, without internal columns."""
    fields = [f for f in schema if f.name not in (metadata.REVISION, metadata.ROWS)]
    return pa.schema([*fields, pa.field("revision", pa.int64())])


def publish(rows: pa.Table) -> pa.Table:
    """Convert panes to their published columns."""
    schema = published(rows.schema)
    columns = [rows.column(f.name) for f in schema if f.name != "revision"]
    return pa.Table.from_arrays([*columns, rows.column(metadata.REVISION)], schema=schema)


def envelope_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a changelog of panes."""
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
    """The envelopes of created and updated panes, given each pane as it was before."""
    kind = envelope_schema(rows.schema).field("before").type
    if before is not None:
        absent = pc.is_null(before.column(metadata.REVISION).combine_chunks())
        was = _columns(publish(before))
        earlier = pa.StructArray.from_arrays(was, fields=list(kind), mask=absent)
    else:
        absent = pa.repeat(True, rows.num_rows)
        earlier = pa.nulls(rows.num_rows, kind)
    after = pa.StructArray.from_arrays(_columns(publish(rows)), fields=list(kind))
    op = pc.if_else(absent, "c", "u")
    return _envelopes(app, view, rows, key, earlier, after, op, ts_ms)


def deletions(app: str, view: str, key: Sequence[str], rows: pa.Table, ts_ms: int) -> pa.Table:
    """The envelopes of deleted panes."""
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
    revisions = rows.column(metadata.REVISION).combine_chunks()
    source = pa.StructArray.from_arrays(
        [pa.repeat(app, count), pa.repeat(view, count), revisions], fields=list(_SOURCE)
    )
    return _fitting(
        pa.Table.from_arrays(
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
    )


def _fitting(made: pa.Table) -> pa.Table:
    """Leave out `before` where a record cannot hold it beside `after`."""
    if made.nbytes <= MAX_RECORD_BYTES:
        return made
    sizes = np.concatenate([row_sizes(batch) for batch in made.to_batches()])
    large = pa.array(sizes > MAX_RECORD_BYTES)
    place = made.schema.get_field_index("before")
    field = made.schema.field(place)
    before = pc.if_else(large, pa.scalar(None, field.type), made.column(place))
    return made.set_column(place, field, before)


def changed_rows(rows: pa.Table, before: pa.Table) -> pa.ChunkedArray:
    """True for each pane that differs from before."""
    known = before.column(metadata.REVISION)
    return pc.fill_null(pc.not_equal(rows.column(metadata.REVISION), known), True)


def key_texts(keys: pa.Table) -> pa.Array:
    """Each row as a JSON object, whose text does not depend on other rows."""
    return json_text.objects(_columns(keys), keys.column_names, _written, comma=", ", colon=": ")


def _written(column: pa.Array) -> list[str]:
    return [row_text(value) for value in to_values(column)]


def _columns(rows: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in rows.columns]
