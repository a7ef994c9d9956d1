"""A visit to one bucket of keys: new rows, timers and expiry.

It does not use Spark. If the function is a fold over the rows of a key, the output depends on the
rows and not on how visits divide them; `meaning` defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.stateful.bisect import Attempts, Failed, Some, Stopped
from headrace.operators.stateful.user_call import CallFailed, Signature
from headrace.plan import metadata
from headrace.plan.lateness import Mask, Moments
from headrace.schema.keys import Codes, coded, first_of_each

NEWEST = "_newest"
"""The event time of the newest row of a key."""

TIMER = "timer"

NEVER = -(1 << 62)
"""A time before all others."""

_MOST_RINGS = 10_000


@dataclass(frozen=True)
class Rules:
    """The step, as far as a worker has to know it. Times are in microseconds."""

    function: Callable[[pa.Table, pa.Table], Any]
    signature: Signature
    events: pa.Schema
    """The columns that the function gets."""
    order: tuple[str, ...]
    """The position columns, which order the rows of a key and come after its own columns."""
    in_time: bool
    """True if rows wait for the watermark."""
    ttl: int
    dead_letters: bool

    @property
    def rows(self) -> pa.Schema:
        """The columns of a row with its position columns."""
        return pa.schema([*self.events, *((name, PLACES[name]) for name in self.order)])

    @property
    def kept(self) -> pa.Schema:
        """The state of a key."""
        return self.signature.state.append(pa.field(NEWEST, pa.int64()))

    @property
    def timed(self) -> bool:
        return TIMER in self.signature.state.names


WATERMARK = "_watermark"
"""The watermark at the arrival of a row."""

PLACES = {
    metadata.TIME: pa.int64(),
    WATERMARK: pa.int64(),
    metadata.COMMIT: pa.int64(),
    metadata.PARTITION: pa.int32(),
    metadata.OFFSET: pa.int64(),
    metadata.TOPIC: pa.string(),
    metadata.INDEX: pa.list_(pa.int32()),
}


@dataclass
class Visit:
    """The results of a visit: the state, the waiting rows, the output and the failures."""

    kept: pa.Table
    held: pa.Table
    outputs: list[pa.Table] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


def visit(
    rules: Rules, kept: pa.Table, held: pa.Table, arrived: pa.Table, watermark: int | None
) -> Visit:
    """Call the function with the rows that are due, fire timers and forget expired keys."""
    moment = NEVER if watermark is None else watermark
    due, held = _due(rules, held, arrived, moment)
    (kept_codes, due_codes), count = coded([kept, due], rules.signature.keys)
    newest = np.full(count, NEVER, np.int64)
    newest[kept_codes] = kept.column(NEWEST).to_numpy()
    concerned = np.zeros(count, np.bool_)
    concerned[due_codes] = True
    concerned[kept_codes[_over(rules, kept, newest[kept_codes], moment)]] = True
    if not concerned.any():
        return Visit(kept, held)
    mine = concerned[kept_codes]
    quiet, touched = kept.filter(pa.array(~mine)), kept.filter(pa.array(mine))
    state = touched.select(rules.signature.state.names)
    ledger = _Ledger(rules, state, kept_codes[mine], newest)
    order = np.lexsort((*reversed(_sort_keys(rules, due)), due_codes))
    rows, codes = due.take(pa.array(order)), due_codes[order]
    by = metadata.TIME if rules.in_time else WATERMARK
    turns = turns_of(rows, by, codes, newest, rules.ttl)
    for turn, here in by_turn(turns):
        if turn:
            ledger.end(np.unique(codes[here]))
        some = rows if len(here) == rows.num_rows else rows.take(pa.array(here))
        ledger.give(some, codes[here])
    ledger.go_on(moment)
    return Visit(pa.concat_tables([quiet, ledger.kept()]), held, ledger.outputs, ledger.failed)


def _due(rules: Rules, held: pa.Table, arrived: pa.Table, moment: int) -> tuple[pa.Table, pa.Table]:
    """The rows that are due, and those that wait."""
    if not rules.in_time:
        return arrived, held
    if not arrived.num_rows and (
        not held.num_rows or pc.min(held.column(metadata.TIME)).as_py() > moment
    ):
        return arrived, held
    rows = pa.concat_tables([held, arrived])
    due = pc.less_equal(rows.column(metadata.TIME), moment)
    return rows.filter(due), rows.filter(pc.invert(due))


def _over(rules: Rules, kept: pa.Table, newest: Moments, moment: int) -> Mask:
    """True for keys with a timer that is due or a ttl that is over."""
    over = newest + rules.ttl <= moment
    if rules.timed:
        over |= _timers(kept) <= moment
    return over


def _timers(state: pa.Table) -> Moments:
    """The timer of each key, far in the future if it has none."""
    times = state.column(TIMER).cast(pa.int64())
    moments: Moments = pc.fill_null(times, -NEVER).to_numpy()
    return moments


def _sort_keys(rules: Rules, rows: pa.Table) -> list[Any]:
    """The columns that order the rows of a key, the most significant first."""
    found: list[Any] = []
    for name in rules.order:
        if name == WATERMARK or (name == metadata.TIME and not rules.in_time):
            continue
        column = rows.column(name)
        if name == metadata.TOPIC:
            (codes,), _ = coded([rows], [name])
            found.append(codes)
        elif name == metadata.INDEX:
            lists = column.to_pylist()
            for level in range(max(map(len, lists), default=0)):
                found.append(np.array([x[level] if level < len(x) else -1 for x in lists]))
        else:
            found.append(column.to_numpy())
    return found


def turns_of(rows: pa.Table, by: str, codes: Codes, newest: Moments, ttl: int) -> Codes:
    """The turn of each row. A key that expired before a row starts a new turn with it.

    A key has expired if the row is `ttl` or more past its newest earlier row. `by` is the column
    that this is measured by: the event time, or in arrival order the watermark at the arrival.
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
    if span * (int(codes.max()) + 1) < -NEVER:  # the sums fit into 64 bits
        near: Moments = np.maximum.accumulate(times - first + codes * span) - codes * span + first
        return near
    values, ranks = np.unique(times, return_inverse=True)
    offsets = codes * len(values)
    highest: Moments = values[np.maximum.accumulate(ranks.reshape(-1) + offsets) - offsets]
    return highest


def by_turn(turns: Codes) -> Iterator[tuple[int, Codes]]:
    """The rows of each turn, in their order."""
    order = np.argsort(turns, kind="stable")
    cuts = first_of_each(turns[order])
    for here in np.split(order, cuts[1:]) if len(cuts) else ():
        yield int(turns[here[0]]), here


class _Ledger:
    """The state of the keys that a visit touches, updated call by call."""

    def __init__(self, rules: Rules, state: pa.Table, codes: Codes, newest: Moments) -> None:
        self._rules = rules
        self._state = state
        self._codes = codes
        self._newest = newest
        self._attempts = Attempts(
            rules.function, rules.signature, rules.events.names, careful=rules.dead_letters
        )
        self.outputs: list[pa.Table] = []

    @property
    def failed(self) -> list[Failed]:
        return self._attempts.failed

    def kept(self) -> pa.Table:
        """The state to keep."""
        newest = pa.array(self._newest[self._codes])
        return self._state.append_column(pa.field(NEWEST, pa.int64()), newest)

    def give(self, rows: pa.Table, codes: Codes) -> None:
        """Call the function with rows in order."""
        seen = self._call(codes[first_of_each(codes)], rows, codes)
        good = seen[codes]
        times = rows.column(metadata.TIME).to_numpy()
        np.maximum.at(self._newest, codes[good], times[good])

    def end(self, codes: Codes) -> None:
        """Forget keys whose ttl is over before their next rows."""
        self._ring(np.isin(self._codes, codes), self._newest + self._rules.ttl)
        self._drop(np.isin(self._codes, codes))

    def go_on(self, moment: int) -> None:
        """Fire the timers due by a time, and forget expired keys."""
        ends = self._newest + self._rules.ttl
        self._ring(np.ones(len(self._codes), np.bool_), np.minimum(ends, moment))
        self._drop(self._newest[self._codes] + self._rules.ttl <= moment)

    def _ring(self, which: Mask, until: Moments) -> None:
        """Call the function without rows for keys with due timers, until none is due."""
        if not self._rules.timed:
            return
        codes, rings, none = self._codes[which], 0, self._rules.rows.empty_table()
        while True:
            timers = _timers(self._state)
            due = np.isin(self._codes, codes) & (timers <= until[self._codes])
            if not due.any():
                return
            rung = np.full(len(self._newest), NEVER, np.int64)
            rung[self._codes[due]] = timers[due]
            self._call(np.sort(self._codes[due]), none, np.zeros(0, np.int64))
            self._silence(rung)
            rings += 1
            if rings > _MOST_RINGS:
                failure = CallFailed(f"a timer fired {rings:,} times in one visit")
                raise Stopped(Failed(failure, none, self._state.slice(0, 1)))

    def _silence(self, rung: Moments) -> None:
        """Clear the timers that the function left in place or moved back."""
        timers = self._state.column(TIMER)
        done = _timers(self._state) <= rung[self._codes]
        cleared = pc.if_else(pa.array(~done), timers, pa.scalar(None, timers.type))
        self._state = self._state.set_column(
            self._state.column_names.index(TIMER), self._state.schema.field(TIMER), cleared
        )

    def _drop(self, which: Mask) -> None:
        self._newest[self._codes[which]] = NEVER
        self._state = self._state.filter(pa.array(~which))
        self._codes = self._codes[~which]

    def _call(self, keys: Codes, rows: pa.Table, row_codes: Codes) -> Mask:
        """Call the function for some keys; return a mask of the keys for which it succeeded."""
        called = np.zeros(len(self._newest), np.bool_)
        called[keys] = True
        mine = called[self._codes]
        state, codes = self._state.filter(pa.array(mine)), self._codes[mine]
        order = np.argsort(codes)
        some = Some(state.take(pa.array(order)), codes[order], rows, row_codes, keys)
        made = self._attempts.make(some)
        self.outputs += [output for output in made.outputs if output.num_rows]
        self._state = pa.concat_tables([self._state.filter(pa.array(~mine)), *made.state])
        self._codes = np.concatenate([self._codes[~mine], *made.codes])
        seen = np.ones(len(self._newest), np.bool_)
        for codes in made.unseen:
            seen[codes] = False
        # A key that was not returned is forgotten, with the time of its newest row.
        there = np.zeros(len(self._newest), np.bool_)
        there[self._codes] = True
        self._newest[~there] = NEVER
        return seen & there
