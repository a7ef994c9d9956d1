"""The changes of a table: a row for each version, in the order in which versions are valid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros, to_datetime
from headrace.engine import places
from headrace.engine.aside import DEAD_SCHEMA, to_json
from headrace.engine.compile import Compiler, column
from headrace.log import Log
from headrace.schema.python_rows import to_rows
from headrace.streams.tables import Table

FROM = "_from"
"""The moment from which on a version is valid, in microseconds."""

ORDER = (FROM, places.COMMIT, places.PARTITION, places.OFFSET)
"""What tells an older version of a key from a newer one."""

TOMBSTONE = "_tombstone"
"""Whether it is a record without a value."""

NO_KEY = "no key"


AMENDS = "_amends"
"""Whether it may correct what was told without it."""


def change_rows(table: Table, compiler: Compiler, amend: timedelta | None = None) -> DataFrame:
    """The versions of a table: its columns, what they are in order by, and whether it ends."""
    rows = compiler.rows(table.input)
    ended = F.col(places.DELETED)
    if table.deleted is not None:
        ended = ended | F.coalesce(column(table.deleted, table.where), F.lit(False))
    # A tombstone has no time of its own: it counts from where the topic had come to before it.
    valid = F.when(F.col(places.DELETED), F.col(places.FRONTIER))
    valid = valid.otherwise(F.unix_micros(places.TIME))
    made = rows.select(
        *(F.col(f"`{name}`") for name in table.columns),
        valid.alias(FROM),
        *(F.col(name) for name in ORDER[1:]),
        ended.alias(places.DELETED),
        F.col(places.DELETED).alias(TOMBSTONE),
        *([places.FRONTIER] if amend is not None else []),
    )
    if amend is None:
        return made
    in_time = F.col(FROM) + F.lit(micros(amend)) > F.col(places.FRONTIER)
    return made.withColumn(AMENDS, in_time).drop(places.FRONTIER)


@dataclass(frozen=True)
class Changes:
    """What a batch brought of a table: versions, and what no key can find."""

    versions: pa.Table
    dead: pa.Table | None
    tombstones: int

    @staticmethod
    def of(rows: pa.Table, table: Table, schema: pa.Schema, step: str, log: Log) -> Changes:
        """Rows of changes, taken apart; versions get the types of a schema."""
        lost = pc.is_null(rows.column(table.key[0]))
        for name in table.key[1:]:
            lost = pc.or_(lost, pc.is_null(rows.column(name)))
        tombstone = rows.column(TOMBSTONE)
        kept = rows.filter(pc.invert(lost)).drop_columns([TOMBSTONE]).cast(schema)
        others = rows.filter(pc.and_(lost, pc.invert(tombstone)))
        ignored = pc.sum(pc.and_(lost, tombstone)).as_py() or 0
        letters = _letters(others, table, step, log) if others.num_rows else None
        return Changes(kept, letters, ignored)


def _letters(rows: pa.Table, table: Table, step: str, log: Log) -> pa.Table:
    found = [
        {
            "step": step,
            "topic": table.topic,
            "partition": row[places.PARTITION],
            "offset": row[places.OFFSET],
            "commit_number": row[places.COMMIT],
            "appended": to_datetime(log.commit_time(row[places.COMMIT])),
            "reason": NO_KEY,
            "row": to_json({name: row[name] for name in table.columns}),
        }
        for row in to_rows(rows)
    ]
    return pa.Table.from_pylist(found, DEAD_SCHEMA)
