"""The changes of a table: a row for each version, in the order in which versions are valid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros, to_datetime
from headrace.log import Log
from headrace.log.dead_letter import NO_KEY, dead_letters, row_text
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.compile import Compiler, column
from headrace.schema.python_rows import to_rows

FROM = "_from"
"""The moment from which on a version is valid, in microseconds."""

ORDER = (FROM, metadata.COMMIT, metadata.PARTITION, metadata.OFFSET)
"""The order of the versions of a key."""

TOMBSTONE = "_tombstone"
"""True for a record without a value."""


AMENDS = "_amends"
"""True if it may correct results from before it."""


def change_rows(table: Table, compiler: Compiler, amend: timedelta | None = None) -> DataFrame:
    """The versions of a table: its columns, their order, and whether they delete the key."""
    rows = compiler.rows(table.input)
    ended = F.col(metadata.DELETED)
    if table.deleted is not None:
        ended = ended | F.coalesce(column(table.deleted, table.where), F.lit(False))
    # A tombstone has no event time: it is valid from the frontier before it.
    valid = F.when(F.col(metadata.DELETED), F.col(metadata.FRONTIER))
    valid = valid.otherwise(F.unix_micros(metadata.TIME))
    made = rows.select(
        *(F.col(f"`{name}`") for name in table.columns),
        valid.alias(FROM),
        *(F.col(name) for name in ORDER[1:]),
        ended.alias(metadata.DELETED),
        F.col(metadata.DELETED).alias(TOMBSTONE),
        *([metadata.FRONTIER] if amend is not None else []),
    )
    if amend is None:
        return made
    in_time = F.col(FROM) + F.lit(micros(amend)) > F.col(metadata.FRONTIER)
    return made.withColumn(AMENDS, in_time).drop(metadata.FRONTIER)


@dataclass(frozen=True)
class Changes:
    """The changes of a table in a batch: versions, and rows without a key."""

    versions: pa.Table
    dead: pa.Table | None
    tombstones: int

    @staticmethod
    def of(rows: pa.Table, table: Table, schema: pa.Schema, step: str, log: Log) -> Changes:
        """Separate versions, in the types of a schema, from rows without a key."""
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
    commits = rows.column(metadata.COMMIT).to_pylist()
    return dead_letters(
        rows.num_rows,
        step=step,
        topic=table.topic,
        partition=rows.column(metadata.PARTITION),
        offset=rows.column(metadata.OFFSET),
        commit_number=rows.column(metadata.COMMIT),
        appended=[to_datetime(log.commit_time(commit)) for commit in commits],
        reason=NO_KEY,
        row=[row_text(row) for row in to_rows(rows.select(list(table.columns)))],
    )
