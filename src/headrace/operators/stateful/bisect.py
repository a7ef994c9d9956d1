"""Calls of the user's function that may fail for some keys, which bisection finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.stateful.user_call import CallFailed, Signature, call
from headrace.schema.keys import Codes, coded, first_of_each
from headrace.schema.python_rows import to_rows

MOST_FAILURES = 1_000
"""The most keys that may fail in a visit. With more, the function is at fault, not the rows."""


@dataclass(frozen=True)
class Some:
    """The state and rows of some keys, sorted by key number."""

    state: pa.Table
    state_codes: Codes
    rows: pa.Table
    row_codes: Codes
    codes: Codes
    """The key numbers, each once."""

    def of(self, codes: Codes) -> Some:
        """The part with these keys."""
        mine, theirs = np.isin(self.state_codes, codes), np.isin(self.row_codes, codes)
        return Some(
            self.state.filter(pa.array(mine)), self.state_codes[mine],
            self.rows.filter(pa.array(theirs)), self.row_codes[theirs], codes,
        )  # fmt: skip

    def keys(self, names: Sequence[str]) -> pa.Table:
        """The keys, in the order of their numbers."""
        first = first_of_each(self.row_codes)
        both = [self.state.select(names), self.rows.select(names).take(pa.array(first))]
        numbers = np.concatenate([self.state_codes, self.row_codes[first]])
        order = np.argsort(numbers, kind="stable")
        return pa.concat_tables(both).take(pa.array(order[first_of_each(numbers[order])]))


@dataclass(frozen=True)
class Failed:
    """A key for which the function failed, with its rows, or none if a timer failed."""

    failure: CallFailed
    rows: pa.Table
    state: pa.Table


class Stopped(Exception):
    """The function failed, and the pipeline stops."""

    def __init__(self, failed: Failed, *, many: bool = False) -> None:
        super().__init__(failed.failure.reason)
        self.failed = failed
        self.many = many


@dataclass
class Made:
    """The results of calls: the state to keep, with its key numbers, and the output."""

    state: list[pa.Table] = field(default_factory=list)
    codes: list[Codes] = field(default_factory=list)
    outputs: list[pa.Table] = field(default_factory=list)
    unseen: list[Codes] = field(default_factory=list)
    """Keys for which the function failed. Their state is unchanged."""


class Attempts:
    """Calls a function. If `careful`, it continues without the keys for which a call fails."""

    def __init__(
        self,
        function: Callable[[pa.Table, pa.Table], Any],
        signature: Signature,
        columns: Sequence[str],
        *,
        careful: bool,
    ) -> None:
        self._function = function
        self._signature = signature
        self._columns = list(columns)
        self._careful = careful
        self.failed: list[Failed] = []

    def make(self, some: Some) -> Made:
        """Call the function with the state and the rows of some keys."""
        made = Made()
        self._make(some, made)
        return made

    def _make(self, some: Some, made: Made) -> None:
        try:
            state, codes, output = self._call(some)
        except CallFailed as failure:
            codes = some.codes
            if len(codes) == 1:
                self._fail(some, failure, made)
                return
            for half in np.array_split(codes, 2):
                self._make(some.of(half), made)
            if not self._careful:
                # Each half succeeded by itself, so the number of rows is at fault.
                raise Stopped(Failed(failure, some.rows, some.state)) from failure
            return
        made.state.append(state)
        made.codes.append(codes)
        made.outputs.append(output)

    def _fail(self, some: Some, failure: CallFailed, made: Made) -> None:
        failed = Failed(failure, some.rows, some.state)
        if not self._careful:
            raise Stopped(failed) from failure
        self.failed.append(failed)
        if len(self.failed) > MOST_FAILURES:
            raise Stopped(failed, many=True) from failure
        made.state.append(some.state)
        made.codes.append(some.state_codes)
        made.unseen.append(some.codes)

    def _call(self, some: Some) -> tuple[pa.Table, Codes, pa.Table]:
        state, output = call(
            self._function, self._signature, some.state, some.rows.select(self._columns)
        )
        return state, self._codes_of(state, some), output

    def _codes_of(self, state: pa.Table, some: Some) -> Codes:
        """The numbers of the returned keys; raises if one is new or occurs twice."""
        names, codes = list(self._signature.keys), some.codes
        given, returned = some.keys(names), state.select(names)
        if returned.equals(given):
            return codes
        (known, found), count = coded([given, returned], names, in_order=False)
        numbers = np.full(count, -1, np.int64)
        numbers[known] = codes
        if (numbers[found] < 0).any():
            row = to_rows(returned.slice(int(np.argmax(numbers[found] < 0)), 1))[0]
            raise CallFailed(f"the state it returned has a key it was not given: {row}")
        times = np.bincount(found)
        if (times > 1).any():
            twice = np.flatnonzero(times > 1)[0]
            row = to_rows(returned.slice(int(np.argmax(found == twice)), 1))[0]
            raise CallFailed(f"the state it returned has the key {row} twice")
        return numbers[found]
