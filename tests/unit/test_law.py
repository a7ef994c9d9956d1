"""The law of conservation alone: one row too many or too few in any term breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import LawBroken
from headrace.plan.law import Law

GOOD = Law(
    rows=100, tombstones=1, dead=2, filtered=3, exploded=4, pairs=92, counted=80, late=7,
    waiting=5, compacted=1, duplicates=5,
)  # fmt: skip
TERMS = ("counted", "late", "duplicates", "pairs", "rows", "exploded")


def test_a_batch_whose_rows_are_all_accounted_for_passes() -> None:
    GOOD.check("step")
    assert GOOD.pairs == GOOD.passed


@pytest.mark.parametrize("term", TERMS)
def test_a_row_too_many_stops_the_batch(term: str) -> None:
    with pytest.raises(LawBroken):
        replace(GOOD, **{term: getattr(GOOD, term) + 1}).check("step")


@pytest.mark.parametrize("term", ["counted", "late", "duplicates", "pairs"])
def test_a_row_too_few_stops_the_batch(term: str) -> None:
    with pytest.raises(LawBroken):
        replace(GOOD, **{term: getattr(GOOD, term) - 1}).check("step")


@pytest.mark.parametrize("term", ["tombstones", "dead", "filtered", "waiting", "compacted"])
def test_a_row_that_was_set_aside_and_is_not_told_of_stops_the_batch(term: str) -> None:
    with pytest.raises(LawBroken):
        replace(GOOD, **{term: getattr(GOOD, term) - 1}).check("step")


def test_batches_add_up_term_by_term() -> None:
    total = GOOD + GOOD
    assert total.holds
    assert total.rows == 2 * GOOD.rows
    assert total.duplicates == 2 * GOOD.duplicates
