"""Groups of duplicate rows, compared with the rule applied row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.operators.dedup import duplicate_groups as module
from headrace.operators.dedup.duplicate_groups import repeats

TTL = 10
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 80)), max_size=40)


def one_by_one(rows: list[tuple[int, int]], held: int) -> list[int]:
    """The opener of each row's group: an earlier one if there is one, else a later one."""
    openers: list[int] = []
    found = []
    for number, (key, time) in enumerate(rows):
        of_key = [(rows[n][1], n) for n in openers if rows[n][0] == key]
        here = [n for began, n in of_key if began <= time < began + TTL]
        ahead = [n for began, n in of_key if time < began < time + TTL]
        known = [*here, *ahead]
        if number < held or not known:
            openers.append(number)
        found.append(number if number < held or not known else known[0])
    return found


def apart(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of the given times, those that can be groups in the state: they are far enough apart."""
    return [row for n, row in enumerate(rows) if one_by_one(rows, 0)[n] == n]


@pytest.mark.parametrize("waves", [0, 1, 8])
@given(before=ROWS, after=ROWS)
@example(before=[], after=[(0, 0), (0, 10), (0, 15)])
@example(before=[], after=[(0, 20), (0, 10), (0, 5)])
def test_groups_are_those_of_the_rule(
    waves: int, before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    held = apart(before)
    rows = [*held, *after]
    keys, times = (np.array([row[part] for row in rows], np.int64) for part in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WAVES", waves)
        found = repeats(keys, times, len(held), TTL)
    expected = one_by_one(rows, len(held))
    assert found.opener.tolist() == expected
    last: dict[int, Any] = {opener: number for number, opener in enumerate(expected)}
    assert dict(zip(*(part.tolist() for part in found.last_of_each()), strict=True)) == last


@pytest.mark.parametrize("step", [1, 7, 10, 15])
def test_one_key_may_have_very_many_groups(step: int) -> None:
    count = 100_000
    times = np.arange(count, dtype=np.int64) * step
    found = repeats(np.zeros(count, np.int64), times, 0, TTL)
    assert np.diff(times[found.opens]).min() >= TTL
    assert int(found.opens.sum()) == -(-count // -(-TTL // step))
