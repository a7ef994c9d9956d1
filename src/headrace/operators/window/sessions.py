"""Sessions in Spark: those of a batch, merged with the open ones of the store.

Spark has sessions, but does not emit them before they are final. So Spark puts the rows of a batch
into sessions, in parts (`partials`), and then merges the parts of overlapping sessions, including
those that the store has from earlier batches. Spark keeps no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.partials import Partial
from headrace.operators.window.windows import Session
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata

GROUP = "_group"


@dataclass(frozen=True)
class Sessions:
    """The sessions of a step. `types` are those of its results."""

    step: Aggregation
    partials: tuple[Partial, ...]
    types: StructType

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """The sessions of some rows alone, in parts."""
        assert isinstance(self.step.window, Session)
        gap = micros(self.step.window.gap)
        # Spark merges sessions that touch; headrace only those that overlap.
        window = F.session_window(metadata.TIME, f"{gap - 1} microseconds")
        found = rows.groupBy(window, *self._keys()).agg(
            *(
                part.alias(name)
                for p in self.partials
                for name, part in zip(p.names, p.parts, strict=True)
            ),
            F.max(metadata.COMMIT).alias(metadata.REVISION),
            F.count(F.lit(1)).alias(metadata.ROWS),
        )
        end = F.timestamp_micros(F.unix_micros("session_window.end") + F.lit(1))
        return found.select(
            *self._keys(),
            F.col("session_window.start").alias(WINDOW_START),
            end.alias(WINDOW_END),
            *self._parts(),
            metadata.REVISION,
            metadata.ROWS,
        )

    def together(self, sessions: DataFrame) -> DataFrame:
        """The sessions of each group merged into one: its results and its parts."""
        made = sessions.groupBy(GROUP).agg(
            *(
                F.any_value(key).alias(name)
                for key, name in zip(self._keys(), self.step.by, strict=True)
            ),
            F.min(WINDOW_START).alias(WINDOW_START),
            F.max(WINDOW_END).alias(WINDOW_END),
            *(
                part.cast(sessions.schema[name].dataType).alias(name)
                for p in self.partials
                for name, part in zip(p.names, p.merged, strict=True)
            ),
            F.max(metadata.REVISION).alias(metadata.REVISION),
            F.sum(metadata.ROWS).alias(metadata.ROWS),
        )
        results = [
            p.result.cast(self.types[name].dataType).alias(name)
            for p, (name, _) in zip(self.partials, self.step.aggregates, strict=True)
        ]
        return made.select(
            *self._keys(), WINDOW_START, WINDOW_END, *results, metadata.REVISION, metadata.ROWS,
            *self._parts(),
        )  # fmt: skip

    def results(self, sessions: DataFrame) -> DataFrame:
        """The same without the parts."""
        return self.together(sessions).drop(*(name for p in self.partials for name in p.names))

    def _keys(self) -> list[Column]:
        return [F.col(f"`{key}`") for key in self.step.by]

    def _parts(self) -> list[Column]:
        return [F.col(name) for p in self.partials for name in p.names]


def grouped(sessions: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Sessions with the number of their group: overlapping sessions of a key have the same."""
    key = _codes(sessions, by)
    start, end = (
        sessions.column(name).cast(pa.int64()).to_numpy() for name in (WINDOW_START, WINDOW_END)
    )
    order = np.lexsort((start, key))
    key, start = key[order], start[order]
    # The latest end so far in each key. Ends are ranks, so a key's offset exceeds any rank.
    ends, rank = np.unique(end[order], return_inverse=True)
    latest = np.maximum.accumulate(key * len(ends) + rank) - key * len(ends)
    apart = np.ones(len(order), np.bool_)
    apart[1:] = (key[1:] != key[:-1]) | (start[1:] >= ends[latest[:-1]])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(apart)
    return sessions.append_column(GROUP, pa.array(group))


def _codes(table: pa.Table, columns: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A code for each row, equal where all of the columns are equal."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in columns:
        column = table.column(name).combine_chunks().dictionary_encode("encode")
        indices = column.indices.to_numpy()
        _, codes = np.unique(codes * (len(column.dictionary) + 1) + indices, return_inverse=True)
    return codes
