"""Thresholds of the doctor: which numbers are a finding, and which are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import headrace as hr
from headrace.application.doctor.checkpoints import slow_checkpoints
from headrace.application.doctor.lag import Skew, growing_lag, skew_of
from headrace.application.doctor.records import Held, Record
from headrace.application.doctor.waiting import Backlog, waits
from headrace.log import PartitionState, Topic, TopicState
from headrace.log.sample import Sample
from headrace.plan.batch import Timing
from headrace.plan.law import Law
from headrace.plan.position import Position
from headrace.plan.steps import steps_of


def batches(lags: Sequence[int], rows: int = 10) -> list[Timing]:
    return [Timing(n, rows, lag, rows, 500, 20, 20, 20, 0, 0) for n, lag in enumerate(lags)]


@pytest.mark.parametrize(
    "lags",
    [
        [80, 100, 120, 140, 160, 180],
        [0, 5, 20, 40, 30, 60, 80, 70, 100],  # not in every batch, but overall
        [1_000, 1_010, 1_030, 1_020, 1_040, 1_060],
    ],
)
def test_lag_that_rises_from_third_to_third_grows(lags: list[int]) -> None:
    found = growing_lag("sales", batches(lags), None)
    assert found is not None
    assert found.lags == tuple(lags)
    assert found.came > found.taken == 10


@pytest.mark.parametrize(
    "lags",
    [
        [90_000, 80_000, 70_000, 60_000, 50_000, 40_000],  # large, and shrinking
        [30, 50, 40, 45, 35, 42],  # level, with an occasional peak
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 5_000, 4_900],  # it was down for a while, and catches up
        [0, 5_000, 4_900, 4_800, 4_700, 4_600],
        [0, 1, 2, 3, 4, 5],  # less than a batch
        [10, 100, 1_000],  # too few batches
    ],
)
def test_lag_that_is_large_or_changes_does_not_therefore_grow(lags: list[int]) -> None:
    assert growing_lag("sales", batches(lags), None) is None


def test_one_partition_that_most_of_the_lag_is_in_is_named() -> None:
    sample = Sample(Topic("orders", 4), 0, (), ())
    before, now = Position(1, (0, 0, 0, 0)), Position(9, (5, 90, 3, 2))
    assert skew_of(sample, (), before, now) == Skew("partition", "1", 0.9)
    assert skew_of(sample, (), before, Position(9, (30, 30, 20, 20))) is None
    found = growing_lag("sales", batches(range(80, 200, 20)), Skew("partition", "1", 0.9))
    assert found is not None
    assert "hot partition 1 has 90% of the rows" in found.evidence
    assert "a hot partition" in found.remedy


def saved(rows: int, results: int, total: int, state: int, stored: int, size: int) -> list[Timing]:
    return [Timing(n, rows, 0, results, total, 50, state, stored, 0, size) for n in range(5)]


@pytest.mark.parametrize(
    ("timings", "helps"),
    [
        (saved(300, 18_000, 4_000, 1_500, 1_500, 9 << 20), "Each row is in many windows"),
        (saved(1_000, 1_000, 4_000, 2_500, 500, 900 << 20), "Reduce the state"),
        (saved(10, 10, 4_000, 20, 3_000, 1_000), "the disk is slow, or another process"),
    ],
    ids=["wide windows", "large state", "slow disk"],
)
def test_a_batch_that_mostly_keeps_what_it_has_computed_has_slow_checkpoints(
    timings: list[Timing], helps: str
) -> None:
    found = slow_checkpoints("sales", timings)
    assert found is not None
    assert helps in found.remedy
    assert "of 4,000 ms per batch" in found.evidence[0]


@pytest.mark.parametrize(
    "timings",
    [
        saved(2_000_000, 10, 9_000, 20, 20, 1_000),  # it spends the time on computing
        saved(500_000, 500_000, 9_000, 2_000, 6_000, 90 << 20),  # it has many rows to store
        saved(10, 10, 200, 50, 80, 1_000),  # it is quick
        saved(300, 18_000, 4_000, 1_500, 1_500, 9 << 20)[:2],  # too few batches
    ],
    ids=["computing", "many rows", "quick", "few"],
)
def test_a_batch_that_is_slow_for_its_rows_has_no_slow_checkpoints(timings: list[Timing]) -> None:
    assert slow_checkpoints("sales", timings) is None


def reasons(ends: Sequence[int], *, read: bool = True, by_partition: bool = True) -> list[str]:
    """What a step waits for whose topic has no frontier."""
    app = hr.App("shop")
    orders = app.topic("orders", schema="at timestamp", event_time="at", partitions=len(ends))
    app.publish("copy", orders)
    (step,) = steps_of(app)
    parts = [PartitionState(p, 0, end, None, 0, None, None) for p, end in enumerate(ends)]
    states = {"orders": TopicState(orders.topic, tuple(parts), None)}
    record = Record({}, None, Law(), "", (), ()) if read else None
    found = waits(
        step, states, record, Held(), Backlog(0, 0), running=True, by_partition=by_partition
    )
    return [f"{wait.name}: {wait.text.partition(' of topic')[0]}" for wait in found]


def test_a_partition_without_rows_is_named_where_each_has_an_event_time() -> None:
    assert reasons([7, 0, 5]) == ["held back by a partition: partition 1"]
    assert reasons([7, 3, 5]) == ["held back by a partition: a partition"]
    assert reasons([0, 0]) == ["topic empty: topic orders is empty"]
    assert reasons([7, 0], by_partition=False) == ["no event time: none of the 7 rows"]


def test_rows_that_nobody_has_read_yet_do_not_lack_an_event_time() -> None:
    assert [name.partition(":")[0] for name in reasons([7, 0], read=False)] == ["never run"]
