"""Rows of many keys in turns: what a key is given after it was forgotten begins anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.plan import metadata
from headrace.plan.lateness import Moments
from headrace.schema.keys import Codes, first_of_each

NEVER = -(1 << 62)
"""Earlier than all there is."""

_FAR = 1 << 62
"""Numbers that are to be added stay below."""


def turns_of(rows: pa.Table, by: str, codes: Codes, newest: Moments, ttl: int) -> Codes:
    """In which turn each row is given: a key that was forgotten before a row begins anew with it.

    That is so where the row came `ttl` or more after the newest before it, by its event time, or
    where rows are given as they arrive, by the watermark that it met: `by` is the column.
    """
    if not len(codes):
        return np.zeros(0, np.int64)
    times = rows.column(metadata.TIME).to_numpy()
    first = first_of_each(codes)
    before = newest[codes]
    before[1:] = np.maximum(before[1:], _highest(times, codes)[:-1])
    before[first] = newest[codes[first]]
    anew = (before != NEVER) & (before <= rows.column(by).to_numpy() - ttl)
    run = np.cumsum(anew)
    lengths = np.diff(np.append(first, len(codes)))
    began = np.repeat(run[first] - anew[first], lengths)
    turns: Codes = (run - began).astype(np.int64)
    return turns


def _highest(times: Moments, codes: Codes) -> Moments:
    """The highest time of each key up to each row."""
    first, span = times.min(), int(times.max()) - int(times.min()) + 1
    if span * (int(codes.max()) + 1) < _FAR:
        near: Moments = np.maximum.accumulate(times - first + codes * span) - codes * span + first
        return near
    values, ranks = np.unique(times, return_inverse=True)
    ranks = ranks.reshape(-1)
    steps = np.maximum.accumulate(ranks + codes * len(values)) - codes * len(values)
    highest: Moments = values[steps]
    return highest


def by_turn(turns: Codes) -> Iterator[tuple[int, Codes]]:
    """The rows of each turn, which stay in order."""
    order = np.argsort(turns, kind="stable")
    cuts = first_of_each(turns[order])
    for here in np.split(order, cuts[1:]) if len(cuts) else ():
        yield int(turns[here[0]]), here
