"""Where a row stands in the log: columns that travel with it through Spark.

Their names begin with an underscore, which no column of a topic may.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

TIME = "_time"
"""The event time, whatever becomes of the column it came from."""

COMMIT = "_commit"
FRONTIER = "_frontier"
"""The topic's frontier before the row's commit, in microseconds."""

MET = "_met"
"""The same as a time, where Spark has to know how far time is by it."""

APPENDED = "_appended"
"""When the log was given the row."""

PARTITION = "_partition"
OFFSET = "_offset"
TOPIC = "_topic"
INDEX = "_index"
"""Which of the rows that one record was exploded into."""

DELETED = "_deleted"
"""Whether it is a tombstone, where these are wanted."""

READY = "_ready"
"""The commit with which a row need wait no longer, where rows wait."""

OPENED = "_opened"
"""When the first of several rows that repeat each other happened, in microseconds."""

BESIDE = "_beside"
"""What a row has become that does not count and yet is told; null of one that counts."""

REVISION = "_revision"
"""The highest commit that a row of a view counts."""

ROWS = "_rows"
"""How many rows a row of a view counts."""

ORDER = (TIME, COMMIT, PARTITION, OFFSET, TOPIC, INDEX)
"""The order of rows: by event time, then by the log, then by what a row was exploded into."""

NO_FRONTIER = -(1 << 62)
"""What FRONTIER says before there is one: lower than any time there is."""

TYPES = {
    COMMIT: pa.int64(),
    FRONTIER: pa.int64(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
}
"""The places that the log itself tells, in the order in which a source gives them."""

MORE_TYPES = {DELETED: pa.bool_(), READY: pa.int64()}
"""Those that are told only when they are asked for."""


def type_of(place: str) -> pa.DataType:
    """The Arrow type of a place that a source can give."""
    return TYPES.get(place) or MORE_TYPES[place]


def revised(rows: pa.Table, revision: int | None) -> pa.Table:
    """Rows with that revision, if it is one for all."""
    if revision is None or REVISION not in rows.column_names:
        return rows
    place = rows.schema.get_field_index(REVISION)
    column = pa.array(np.full(rows.num_rows, revision, np.int64))
    return rows.set_column(place, rows.schema.field(place), column)
