"""The demo's account goes red if anything is lost, doubled or out of order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.cli.demonstration.check import (
    Stored,
    all_acknowledged,
    all_handled,
    each_once,
    in_order,
)
from headrace.cli.demonstration.plan import make_plan, orders


def stored(*rows: tuple[int, str, int]) -> Stored:
    numbers, customers, steps = zip(*rows, strict=True)
    return Stored(np.array(numbers, np.int64), customers, np.array(steps, np.int64))


GOOD = [
    stored((0, "a", 1), (2, "a", 2), (3, "a", 3)),
    stored((1, "b", 1), (4, "b", 2)),
]


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_a_log_with_each_event_once_and_in_order_is_good() -> None:
    assert each_once(GOOD, 5, 5).holds
    assert in_order(GOOD).holds
    assert in_order(GOOD).counted == 2


def test_an_event_that_was_acknowledged_and_is_missing_is_seen() -> None:
    finding = each_once([stored((0, "a", 1), (2, "a", 2))], 3, 3)
    assert not finding.holds
    assert finding.remark == "1 missing, 0 twice"


def test_an_event_that_is_in_the_log_twice_is_seen() -> None:
    finding = each_once([*GOOD, stored((4, "c", 1))], 5, 5)
    assert not finding.holds
    assert finding.remark == "0 missing, 1 twice"


def test_an_event_that_nobody_sent_is_seen() -> None:
    assert not each_once([*GOOD, stored((5, "c", 1))], 5, 5).holds


def test_events_of_a_customer_in_the_wrong_order_are_seen() -> None:
    assert not in_order([stored((0, "a", 2), (1, "a", 1))]).holds


def test_a_gap_in_the_events_of_a_customer_is_seen() -> None:
    assert not in_order([stored((0, "a", 1), (2, "a", 3))]).holds


def test_a_customer_in_two_partitions_is_seen() -> None:
    assert not in_order([stored((0, "a", 1)), stored((1, "a", 2))]).holds


def test_a_group_may_handle_an_event_again_but_not_leave_one_out() -> None:
    again = all_handled("g", numbers(0, 1, 1, 2), 3)
    assert again.holds
    assert again.remark == "0 missing, 1 repeated"
    assert not all_handled("g", numbers(0, 1, 1), 3).holds
    assert not all_handled("g", numbers(0, 1, 7), 3).holds


def test_fewer_acknowledged_than_sent_is_seen() -> None:
    assert all_acknowledged(5, 5).holds
    assert not all_acknowledged(4, 5).holds


def test_a_producer_that_starts_again_makes_the_same_events() -> None:
    plan = make_plan("file:x", "/tmp", "t", 500)
    first: Sequence[object] = list(orders(plan))
    assert first == list(orders(plan))
    assert len(first) == 500


def test_a_short_demo_and_a_long_one_commit_about_as_often() -> None:
    for events in (1_000, 10_000, 1_000_000):
        plan = make_plan("file:x", "/tmp", "t", events)
        assert 10 <= plan.rate / plan.chunk <= 30


def test_a_demo_of_a_few_events_has_a_middle_to_be_killed_in() -> None:
    assert make_plan("file:x", "/tmp", "t", 100).chunk <= 5
    assert make_plan("file:x", "/tmp", "t", 1).chunk == 1
