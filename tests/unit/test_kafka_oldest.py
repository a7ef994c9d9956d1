"""The oldest rows of a batch, from Spark's metrics."""

from __future__ import annotations

import json

from headrace.runtime.kafka.oldest import KEPT, Oldest


def oldest_of(*rows: tuple[int, int, int]) -> Oldest:
    made = [{"partition": p, "offset": o, "timestamp": 0, "time": t} for p, o, t in rows]
    return Oldest.from_json(json.dumps({"rows": made}))


def test_a_record_that_spark_came_by_twice_is_there_once() -> None:
    oldest = oldest_of((0, 7, 1), (1, 7, 2), (0, 7, 1), (0, 8, 5)).before(5)
    assert oldest is not None
    assert [(row["partition"], row["offset"]) for row in oldest.rows] == [(0, 7), (1, 7)]


def test_where_all_that_are_kept_are_before_a_moment_there_may_be_others() -> None:
    rows = [(0, number, number) for number in range(KEPT)]
    assert oldest_of(*rows).before(KEPT) is None
    assert oldest_of(*rows[1:]).before(KEPT) is not None
    assert oldest_of(*([(0, 1, 1)] * KEPT)).before(2) is None


def test_there_may_be_no_rows_at_all() -> None:
    oldest = Oldest.from_json(json.dumps({"rows": None})).before(5)
    assert oldest is not None
    assert not oldest.rows
