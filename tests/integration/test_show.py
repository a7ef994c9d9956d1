"""`hr.show`: plain Python and Spark show the same rows of the same part of a log."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

import headrace as hr
from headrace.application.show_spark import computed
from headrace.errors import Unsupported
from headrace.log.sample import newest
from headrace.operators.registry import operator_of
from headrace.oracle.excerpt import excerpt_of
from headrace.oracle.expressions import BeyondOracle, compile_sql
from headrace.pipeline.stream import Late, Stream, sources
from headrace.servers.kafka import ClusterState
from headrace.testing import ScriptedLog, scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

app = hr.App("shop")
orders = app.topic(
    "orders", schema="item string, n int, price decimal(8,2), at timestamp", event_time="at",
    key="item", partitions=2,
)  # fmt: skip
refunds = app.topic("refunds", schema="item string, m int, at timestamp", event_time="at")
lateness = hr.Lateness(delay=MINUTE, grace=MINUTE)
sales = hr.aggregate(
    hr.derive(hr.filter(orders, "n > 0"), spent="price * n"),
    by="item", window=hr.hopping(2 * MINUTE, MINUTE), lateness=lateness,
    sold=hr.count(), spent=hr.sum("spent"), mean=hr.average("n"), last=hr.last("n"),
)  # fmt: skip


@pytest.fixture(scope="module")
def log() -> Iterator[ScriptedLog]:
    """Forty commits to two topics, with rows out of order, late, dead and deleted."""
    with scripted_log(start=NOON + 90 * MINUTE) as made:
        for number in range(40):
            at = NOON + (number - 7 * (number % 5)) * MINUTE
            price = Decimal(number) / 4
            rows = [{"item": i, "n": number % 3, "price": price, "at": at} for i in ("pen", "ink")]
            made.write(orders, *rows, {"item": "cap", "n": None, "price": None, "at": at})
            if number % 4 == 0:
                made.write(refunds, {"item": "pen", "m": number, "at": at})
        made.write(orders, {"item": "pen", "n": 1, "price": None, "at": None})
        with made.log.producer() as producer:
            producer.send("orders", None, key="cap")
        yield made


def by_text(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((name, str(value)) for name, value in row.items()) for row in rows)


ROWS_READ = 60
"""Half of the orders: the windows of the others are not known, and their frontier is."""

STEPS: dict[str, Stream] = {
    "rows": hr.filter(orders, "n IN (1, 2) AND NOT (item = 'ink' OR price IS NULL)"),
    "windows": sales,
    "late rows": sales.late,
    "final": hr.aggregate(
        orders, by="item", window=hr.session(MINUTE), lateness=lateness, n=hr.count(), emit="final"
    ),
    "ranking": hr.top(sales, 2, by="sold"),
    "join": hr.join(
        orders, refunds, on="item", after=MINUTE, delay=10 * MINUTE, how="left", prefix="r_"
    ),
    "distinct": hr.deduplicate(orders, by=["item", "n"], ttl=5 * MINUTE, delay=MINUTE),
}


@pytest.mark.parametrize("step", STEPS)
def test_python_and_spark_show_the_same_rows(log: ScriptedLog, step: str) -> None:
    stream = STEPS[step]
    samples = [newest(log.log, source.topic.name, ROWS_READ) for source in sources(stream)]
    excerpt = excerpt_of(samples)
    if isinstance(stream, Late):
        meant = operator_of(stream.of).shown_late(stream.of, excerpt)
    else:
        meant = operator_of(stream).shown(stream, excerpt)
    assert meant
    assert by_text(meant) == by_text(computed(stream, samples, shared()))


def test_spark_shows_what_the_oracle_does_not_know(log: ScriptedLog) -> None:
    items = hr.table(orders, key="item")
    looked = hr.enrich(refunds, items, on="item", wait=MINUTE, prefix="o_")
    window, hits = hr.tumbling(MINUTE), hr.count()
    chained = hr.aggregate(looked, by="item", window=window, lateness=lateness, hits=hits)
    for step in (hr.derive(orders, x="md5(item)"), looked, chained):
        found = hr.show(step, 3, log=log.log, spark=shared())
        assert len(found.rows) == 3
        assert found.spark
        assert set(found.rows[0]) == set(step.columns)


EXPRESSIONS = (
    "n + 1", "n - m", "n * m", "n / 4", "n % 3", "-n % 3", "x % 3", "n > m", "n = 2 OR m IS NULL",
    "n = 2 AND m > 0", "price + 1", "price * n", "price * 0.5", "n * 0.5", "x * 0.5", "price - x",
    "price > 0.25", "x = 0.1", "n = 1.0", "x / n", "-price", "s = 'b'", "s < 'b'", "upper(s)",
    "length(s)", "NOT b", "b AND n > 1", "coalesce(s, 'none')", "nullif(n, 2)", "n IN (1, NULL)",
    "n IN (2, 5)", "s IN ('a', 'z')", "CASE WHEN n > 1 THEN 'many' WHEN b THEN s END", "at > at",
    "t.a + 1", "t.b.c", "array(n, m)", "s IS NOT NULL", "n <> m", "1e3 * n", "TRUE",
)  # fmt: skip

REFUSED = (
    "n > '1'", "s > 1", "s = TRUE", "n + s", "s || 'x'", "at > '2026-01-01'", "b = 1", "n / 0",
    "price / 2", "b IS TRUE", "CASE n WHEN 1 THEN 2 END", "s LIKE 'a%'", "cast(n AS string)",
    "9223372036854775807 + n", "n AND b", "length(n)", "y = y", "nothing",
)  # fmt: skip

ROWS: list[dict[str, Any]] = [
    {"n": 1, "m": 5, "x": 0.1, "price": Decimal("0.25"), "s": "a", "b": True, "at": NOON,
     "t": {"a": 1, "b": {"c": "x"}}},
    {"n": 2, "m": -5, "x": -2.5, "price": Decimal("10.00"), "s": "b", "b": False, "at": NOON,
     "t": {"a": None, "b": None}},
    {"n": -7, "m": None, "x": None, "price": None, "s": None, "b": None, "at": None, "t": None},
]  # fmt: skip
SCHEMA = (
    "n int, m bigint, x double, price decimal(8,2), s string, b boolean, at timestamp, "
    "t struct<a: int, b: struct<c: string>>"
)


def test_the_oracle_computes_expressions_as_spark_does() -> None:
    frame = shared().createDataFrame(ROWS, SCHEMA).coalesce(1)
    made = [F.expr(text).alias(str(number)) for number, text in enumerate(EXPRESSIONS)]
    found = frame.select(*made).toArrow().to_pylist()
    for row, expected in zip(ROWS, found, strict=True):
        for number, text in enumerate(EXPRESSIONS):
            value, meant = compile_sql(text)(row), expected[str(number)]
            assert (value, str(value)) == (meant, str(meant)), (text, row)


@pytest.mark.parametrize("text", REFUSED)
def test_the_oracle_refuses_what_spark_would_convert_or_fail_at(text: str) -> None:
    with pytest.raises(BeyondOracle):
        compile_sql(text)({**ROWS[0], "y": math.nan})


@pytest.mark.service
def test_steps_over_topics_of_a_broker_are_shown(broker: ClusterState) -> None:
    shop = hr.App("shown", log=broker.url)
    bought = shop.topic("shown.orders", schema="item string, n int, at timestamp", event_time="at")
    counted = hr.aggregate(
        bought, by="item", window=hr.tumbling(MINUTE), lateness=lateness, n=hr.sum("n")
    )
    with hr.open_log(broker.url) as log:
        log.ensure_topic(bought.topic)
        with log.producer() as producer:
            for number in range(5):
                at = NOON + timedelta(seconds=30 * number)
                producer.send("shown.orders", {"item": "pen", "n": number, "at": at})
    assert [row["n"] for row in hr.show(bought, 2).rows] == [4, 3]
    assert [row["n"] for row in hr.show(hr.filter(bought, "n > 0"), 2, first=True).rows] == [1, 2]
    shown = hr.show(counted)
    assert [(row["window_start"].minute, row["n"]) for row in shown.rows] == [
        (2, 4),
        (1, 5),
        (0, 1),
    ]
    assert "all 5 rows" in str(shown)


@pytest.mark.service
def test_a_foreign_topic_that_nobody_has_adopted_is_not_shown(broker: ClusterState) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.create_topics([NewTopic("shown.foreign", 1)])["shown.foreign"].result()
    shop = hr.App("shown", log=broker.url)
    foreign = shop.topic("shown.foreign", schema="n int, at timestamp", event_time="at")
    with pytest.raises(Unsupported, match="was made by another program"):
        hr.show(foreign)
