"""Windows in Spark: the windows of each row, and state that Spark evicts when they close."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.windows import AnyWindow, Cumulative, Sliding, Window
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.watermark import HELD, PANE, grid_ends


def window_ends(window: AnyWindow) -> list[Column]:
    """The ends of the windows that a row may be in, the latest first, in microseconds.

    Spark's own `window` computes each start and end separately, and makes a struct of them, which
    its fast aggregation cannot take as a key.
    """
    time = F.unix_micros(metadata.TIME)
    if isinstance(window, Cumulative):
        size, offset = F.lit(micros(window.size)), F.lit(micros(window.offset))
        until = time - F.pmod(time - offset, size) + size
        # A window of the next start does not hold the row: it gets an end that no window has.
        ends = grid_ends(window.size, window.step, window.offset)
        return [F.when(end <= until, end).otherwise(time) for end in ends]
    if not isinstance(window, Window):
        (after,) = window.ends(0)
        return [time + F.lit(after)]
    return grid_ends(window.size, window.every, window.offset)


def window_columns(window: AnyWindow, end: Column) -> tuple[Column, Column]:
    """The start and the end of a window, from its end in microseconds."""
    start = F.timestamp_micros(window.start_of(end))
    return start.alias(WINDOW_START), F.timestamp_micros(end).alias(WINDOW_END)


_MOMENT = "_moment"

Aggregates = Callable[[Callable[[Column], Column]], list[Column]]
"""The named aggregates of a step, given a function that wraps each Spark aggregate."""


def slide(held: DataFrame, step: Aggregation, made: Aggregates, since: int) -> DataFrame:
    """The sliding windows of all held rows that have new rows since a commit.

    Spark's state holds the rows of each key in overlapping panes of twice the size, one starting
    every size. So the pane that has a row in its second half holds all of the row's window. The
    changes of a batch are then an ordinary window function over the panes' rows.
    """
    assert isinstance(step.window, Sliding)
    size = micros(step.window.size)
    keys = [F.col(f"`{key}`") for key in step.by]
    rows = held.select(*keys, F.unix_micros(PANE).alias(PANE), F.inline(HELD))
    rows = rows.withColumn(_MOMENT, F.unix_micros(metadata.TIME))
    here = Over.partitionBy(*keys, PANE)
    window = here.orderBy(_MOMENT).rangeBetween(-size, 0)
    same = Over.partitionBy(*keys, PANE, _MOMENT)
    results = rows.select(
        *keys,
        PANE,
        _MOMENT,
        *made(lambda column: column.over(window)),
        F.max(metadata.COMMIT).over(window).alias(metadata.REVISION),
        F.count(F.lit(1)).over(same).alias(metadata.ROWS),
        F.row_number().over(same.orderBy(_MOMENT)).alias("_number"),
    )
    # Rows of one key and moment share a window. In the first half of a pane it is incomplete.
    mine = (F.col("_number") == 1) & (F.col(_MOMENT) >= F.col(PANE) - F.lit(size))
    return results.where(mine & (F.col(metadata.REVISION) > since)).select(
        *keys,
        *window_columns(step.window, F.col(_MOMENT)),
        *(F.col(f"`{name}`") for name, _ in step.aggregates),
        metadata.REVISION,
        metadata.ROWS,
    )
