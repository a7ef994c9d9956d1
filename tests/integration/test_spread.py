"""Spark spreads the numbers of buckets evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F

from headrace.operators.stateful.spread import labels, spark_hash
from tests.spark import shared


def test_the_hash_is_sparks() -> None:
    rows = shared().range(0, 5_000, 7).select(F.col("id"), F.hash(F.col("id").cast("int")))
    assert all(spark_hash(number) == found for number, found in rows.collect())


@pytest.mark.parametrize("count", [1, 2, 3, 8, 12, 64, 1_000])
def test_tasks_get_as_many_buckets_each(count: int) -> None:
    numbers = labels(count)
    assert len(set(numbers)) == count
    for tasks in (n for n in range(1, count + 1) if count % n == 0):
        assert set(Counter(spark_hash(n) % tasks for n in numbers).values()) == {count // tasks}
