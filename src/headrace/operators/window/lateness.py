"""Late events of windows in whole columns, without Spark, for rows that no step has changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pyarrow as pa

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.windows import AnyWindow, Cumulative, Window
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.lateness import Closing, Mask, Moments, too_late

_MOMENT = pa.timestamp("us", tz="UTC")

LATE_FIELDS = [
    pa.field(WINDOW_START, _MOMENT),
    pa.field(WINDOW_END, _MOMENT),
    pa.field("watermark", _MOMENT),
    pa.field("late_by", pa.float64()),
]
"""The columns that a late row has in addition to its own."""


def closing_of(window: AnyWindow, after: timedelta) -> Closing:
    """The rule that closes a window this long after its end."""
    patience = micros(after)
    if isinstance(window, Window):
        size, every, offset = map(micros, (window.size, window.every, window.offset))
        return Closing(size, every, offset, patience)
    if isinstance(window, Cumulative):
        # A row is too late for one of its windows if it is too late for the shortest.
        shortest = micros(window.step)
        return Closing(shortest, shortest, micros(window.offset) % shortest, patience)
    # A row has its own window, with an end at a fixed distance from the row.
    (end,) = window.ends(0)
    return Closing.after(patience + end)


def late_pairs(candidates: pa.Table, step: Aggregation, time: str, schema: pa.Schema) -> pa.Table:
    """The late pairs of row and window, for rows that reach the window unchanged."""
    patience = micros(step.patience)
    delay = micros(step.lateness.delay)
    times = candidates.column(time).cast(pa.int64()).to_numpy()
    frontiers = candidates.column(metadata.FRONTIER).to_numpy()
    parts = []
    for ends, there in _window_ends(step.window, times):
        late = np.flatnonzero(there & too_late(ends, frontiers, patience))
        watermark, end = frontiers[late] - delay, ends[late]
        rows = candidates.select(list(step.input.columns)).take(pa.array(late))
        starts = step.window.start_of(end)
        moments = [pa.array(moment).cast(_MOMENT) for moment in (starts, end, watermark)]
        late_by = pa.array((frontiers[late] - patience - end) / 1_000_000.0)
        parts.append(pa.Table.from_arrays([*rows.columns, *moments, late_by], schema=schema))
    return pa.concat_tables(parts)


def _window_ends(window: AnyWindow, times: Moments) -> Iterator[tuple[Moments, Mask]]:
    """The ends of the windows that moments may be in, and a mask of the moments in them."""
    if isinstance(window, Cumulative):
        size, step, offset = map(micros, (window.size, window.step, window.offset))
        starts = (times - offset) // size * size + offset
        first = starts + ((times - starts) // step + 1) * step
        for number in range(size // step):
            ends = first + number * step
            yield ends, ends <= starts + size
        return
    if not isinstance(window, Window):
        (after,) = window.ends(0)
        yield times + after, np.ones(len(times), np.bool_)
        return
    size, every, offset = map(micros, (window.size, window.every, window.offset))
    last = (times - offset) // every * every + offset
    for number in range(-(-size // every)):
        ends = last + size - number * every
        yield ends, ends > times
