"""Search for a sequence of steps in the rows of many keys at once.

The state of a key is, for every position in the sequence, the latest start from which its rows have
reached that position. A later start is never worse, so one start per position is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.schema.keys import Codes, coded, first_of_each

STARTED, ENDED = "started_at", "ended_at"
PLACES = "places"
"""The state column: for each position in the sequence, the first and last time of each step."""

NONE = -(1 << 62)
_FEW = 16
_MOMENT = pa.timestamp("us", tz="UTC")

Times = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Sequence:
    """Steps that follow each other, each `times` times, all `within` a number of microseconds.

    The rows have a boolean column for each step, under its name.
    """

    keys: tuple[str, ...]
    time: str
    names: tuple[str, ...]
    times: tuple[int, ...]
    within: int
    strict: bool

    @property
    def identity(self) -> str:
        """Text that differs between different sequences."""
        steps = [f"{name} x{n}" for name, n in zip(self.names, self.times, strict=True)]
        strict = ", one right after the other" if self.strict else ""
        return f"{', '.join(steps)} within {self.within}{strict}"

    @property
    def places(self) -> list[int]:
        """The step of each position in the sequence."""
        return [step for step, n in enumerate(self.times) for _ in range(n)]

    def __call__(self, state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        (state_codes, codes), count = coded([state, events], self.keys)
        best = np.full((count, len(self.places) - 1, 2 * len(self.names)), NONE, np.int64)
        if state.num_rows and best[0].size:
            kept = state.column(PLACES).combine_chunks().flatten().to_numpy()
            best[state_codes] = kept.reshape(-1, *best.shape[1:])
        moments = events.column(self.time).cast(pa.int64()).to_numpy()
        truths = np.column_stack(
            [events.column(name).to_numpy().astype(np.bool_) for name in self.names]
        )
        rows, found = self._search(best, codes, moments, truths)
        kept = self._kept(state, state_codes, events, codes, best, moments)
        return kept, self._matches(events, rows, found, moments)

    def _search(
        self, best: Times, codes: Codes, moments: Times, truths: Truths
    ) -> tuple[Codes, Times]:
        """The rows that complete the sequence, and the times of its steps."""
        # A row that matches no step matters only if the sequence is strict.
        rows = np.arange(len(codes)) if self.strict else np.flatnonzero(truths.any(axis=1))
        first = first_of_each(codes[rows])
        lengths = np.diff(np.append(first, len(rows)))
        rank = np.arange(len(rows)) - np.repeat(first, lengths)
        order = np.argsort(rank, kind="stable")
        rounds = np.split(rows[order], np.flatnonzero(np.diff(rank[order])) + 1)
        ends, found, done = [np.zeros(0, np.int64)], [np.zeros((0, best.shape[2]), np.int64)], 0
        for here in rounds:
            if len(here) < _FEW:  # few keys with many rows: row by row is faster
                break
            complete, made = self._advance(best, codes[here], moments[here], truths[here])
            ends.append(here[complete])
            found.append(made[complete])
            done += 1
        rest = np.sort(rows[rank >= done])
        for row, made_of_one in self._one_by_one(best, codes, moments, truths, rest):
            ends.append(np.array([row]))
            found.append(np.array([made_of_one], np.int64))
        return np.concatenate(ends), np.concatenate(found)

    def _advance(
        self, best: Times, codes: Codes, moments: Times, truths: Truths
    ) -> tuple[Truths, Times]:
        """Take one row of each key; return a mask of the keys that complete the sequence."""
        places = self.places
        before = best[codes]
        after = np.full_like(before, NONE) if self.strict else before.copy()
        complete, made = np.zeros(len(codes), np.bool_), np.zeros((len(codes), best.shape[2]))
        for place in range(len(places) - 1, -1, -1):
            step = places[place]
            if place:
                reached = before[:, place - 1].copy()
                hit = truths[:, step] & (reached[:, 0] >= moments - self.within)
            else:
                reached = np.full((len(codes), best.shape[2]), NONE, np.int64)
                hit = truths[:, step]
            if not place or places[place - 1] != step:
                reached[:, 2 * step] = moments
            reached[:, 2 * step + 1] = moments
            if place == len(places) - 1:
                complete, made = hit, reached
            else:
                after[hit, place] = reached[hit]
        after[complete] = NONE
        best[codes] = after
        return complete, made

    def _one_by_one(
        self, best: Times, codes: Codes, moments: Times, truths: Truths, rows: Codes
    ) -> list[tuple[int, list[int]]]:
        """The same row by row, without NumPy."""
        places, width = self.places, best.shape[2]
        nothing = [NONE] * width
        kept: dict[int, list[list[int]]] = {}
        found = []
        for row, code, moment, truth in zip(
            rows.tolist(), codes[rows].tolist(), moments[rows].tolist(), truths[rows].tolist(),
            strict=True,
        ):  # fmt: skip
            before = kept[code] if code in kept else best[code].tolist()
            after = [nothing] * len(before) if self.strict else list(before)
            for place in range(len(places) - 1, -1, -1):
                step = places[place]
                if not truth[step]:
                    continue
                if place and before[place - 1][0] < moment - self.within:
                    continue
                reached = list(before[place - 1] if place else nothing)
                if not place or places[place - 1] != step:
                    reached[2 * step] = moment
                reached[2 * step + 1] = moment
                if place == len(places) - 1:
                    found.append((row, reached))
                    after = [nothing] * len(before)
                    break
                after[place] = reached
            kept[code] = after
        for code, after in kept.items():
            best[code] = np.array(after, np.int64).reshape(best.shape[1:])
        return found

    def _kept(
        self,
        state: pa.Table,
        state_codes: Codes,
        events: pa.Table,
        codes: Codes,
        best: Times,
        moments: Times,
    ) -> pa.Table:
        """The state to keep: keys with a started sequence that can still complete."""
        newest = np.full(len(best), NONE, np.int64)
        np.maximum.at(newest, codes, moments)
        over = best[:, :, 0] < np.maximum(newest - self.within, NONE + 1)[:, None]
        best[over] = NONE
        alive = np.flatnonzero(~over.all(axis=1))
        first = np.zeros(len(best), np.int64)
        both = pa.concat_tables([state.select(self.keys), events.select(self.keys)])
        # Backwards, so that the first row of each key is the one that stays.
        every = np.concatenate([state_codes, codes])
        first[every[::-1]] = np.arange(len(every))[::-1]
        keys = both.take(pa.array(first[alive]))
        size = best.shape[1] * best.shape[2]
        offsets = pa.array(np.arange(len(alive) + 1, dtype=np.int32) * size)
        lists = pa.ListArray.from_arrays(offsets, pa.array(best[alive].reshape(-1)))
        return keys.append_column(PLACES, lists)

    def _matches(self, events: pa.Table, rows: Codes, found: Times, moments: Times) -> pa.Table:
        order = np.argsort(rows, kind="stable")
        rows, found = rows[order], found[order]
        made = {key: events.column(key).take(pa.array(rows)) for key in self.keys}
        made |= {STARTED: _moments(found[:, 0]), ENDED: _moments(moments[rows])}
        for step, name in enumerate(self.names):
            made[f"{name}_first"] = _moments(found[:, 2 * step])
            made[f"{name}_last"] = _moments(found[:, 2 * step + 1])
        return pa.table(made)


def _moments(times: Times) -> pa.Array:
    return pa.array(times.astype(np.int64)).cast(_MOMENT)
