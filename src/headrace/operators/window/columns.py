"""Windows in Spark: which ones a row is in, and a state that Spark forgets when they are closed."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.operators.window.windows import AnyWindow, Cumulative, Window
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.panes import grid_ends


def window_ends(window: AnyWindow) -> list[Column]:
    """The ends of the windows that a row may be in, the latest first, in microseconds.

    Spark's own `window` computes each start and end from the time anew, and makes a struct of them,
    which its fast aggregation cannot take as a key.
    """
    time = F.unix_micros(metadata.TIME)
    if isinstance(window, Cumulative):
        size, offset = F.lit(micros(window.size)), F.lit(micros(window.offset))
        until = time - F.pmod(time - offset, size) + size
        # A window of the next beginning would not hold the row: its end is put where none is.
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
