"""The rows of a key in turns, for any event times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.stateful.bucket import NEVER, by_turn, turns_of
from headrace.plan import metadata
from headrace.plan.lateness import Moments
from headrace.schema.keys import Codes

SECOND = 1_000_000
YEARS = 1 << 58
"""A distance in microseconds at which times and keys do not fit into one number."""


def one_by_one(times: Moments, codes: Codes, newest: Moments, ttl: int) -> list[int]:
    """The expected result of `turns_of`, computed row by row."""
    seen, turn, found = dict(enumerate(newest.tolist())), dict.fromkeys(codes.tolist(), 0), []
    for time, code in zip(times.tolist(), codes.tolist(), strict=True):
        if seen[code] != NEVER and seen[code] <= time - ttl:
            turn[code] += 1
        seen[code] = max(seen[code], time)
        found.append(turn[code])
    return found


@pytest.mark.parametrize("apart", [1, SECOND, YEARS])
def test_a_key_begins_anew_when_it_was_quiet_for_its_time_to_live(apart: int) -> None:
    random = np.random.default_rng(1)
    codes = np.sort(random.integers(0, 20, 200))
    times = random.integers(-8, 8, 200) * apart
    newest = np.where(random.random(20) < 0.5, NEVER, random.integers(-8, 8, 20) * apart)
    rows = pa.table({metadata.TIME: times})
    turns = turns_of(rows, metadata.TIME, codes, newest, 3 * apart)
    assert turns.tolist() == one_by_one(times, codes, newest, 3 * apart)
    assert turns.max() > 1


def test_the_rows_of_a_turn_stay_in_order() -> None:
    turns = np.array([0, 1, 0, 2, 1, 0])
    found = [(turn, here.tolist()) for turn, here in by_turn(turns)]
    assert found == [(0, [0, 2, 5]), (1, [1, 4]), (2, [3])]
