"""Debezium's envelope: the columns of a topic of changes of a table."""

from __future__ import annotations

import pyarrow as pa

KEY = "key"
"""The column with the key of a row: a JSON object of its primary key."""

EVENT_TIME = "timestamp_micros(source.ts_us)"
"""The time of the commit in the database.

The capture never lets it go back, nor be ahead of its own clock. So a later change of a row has
never an earlier time, whatever the clock of the database does.
"""

SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("name", pa.string()),
        ("db", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("position", pa.string()),
        ("tx", pa.string()),
        ("order", pa.int64()),
        ("part", pa.int32()),
        ("last_part", pa.bool_()),
        ("snapshot", pa.string()),
        ("ts_ms", pa.int64()),
        ("ts_us", pa.int64()),
    ]
)
"""The origin of a change.

`position` and `tx` are the source's own. `order` is the place of the change in its transaction,
across tables, from 1: it orders what one transaction did to several tables. A transaction is in one
commit of the log, and `part` is null; one that is larger than a commit may be has parts, numbered
from 1, up to the `last_part`. `snapshot` is null for the stream of changes, else `initial` or
`incremental`.
"""


def envelope_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a topic of changes of a table with those columns."""
    row = pa.struct([field.with_nullable(True) for field in columns])
    return pa.schema(
        [
            (KEY, pa.string()),
            ("before", row),
            ("after", row),
            ("source", SOURCE),
            ("op", pa.string()),
            ("ts_ms", pa.int64()),
        ]
    )
