"""A JOIN in SQL is the join, lookup or table join that Python declares."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.pipeline.stream import Stream
from headrace.plan.steps import Step, definition_of

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NONE, TICK = timedelta(0), timedelta(microseconds=1)

app = hr.App("test")
orders = app.topic(
    "orders", schema="id string, price int, currency string, order_time timestamp",
    event_time="order_time",
)  # fmt: skip
shipments = app.topic(
    "shipments", schema="order_id string, price int, ship_time timestamp", event_time="ship_time"
)
clicks = app.topic("clicks", schema="id string, url string, at timestamp", event_time="at")
rate_changes = app.topic(
    "rates", schema="currency string, rate double, since timestamp", event_time="since"
)
user_changes = app.topic(
    "users", schema="id string, name string, city string, at timestamp", event_time="at"
)
city_changes = app.topic("cities", schema="code string, name string, at timestamp", event_time="at")
rates = hr.table(rate_changes, key="currency")
users = hr.table(user_changes, key="id")
cities = hr.table(city_changes, key="code")
STREAMS: dict[str, Any] = {
    "orders": orders, "shipments": shipments, "clicks": clicks, "rates": rates, "users": users,
    "cities": cities,
}  # fmt: skip


def of(query: str, **spans: Any) -> Stream:
    made: Stream = hr.sql(query, **STREAMS, **spans)
    return made


def same(made: Stream, other: Stream) -> None:
    assert made == other
    assert definition_of(Step("a", "n", made)) == definition_of(Step("a", "n", other))


def joined(left: Stream = orders, right: Stream = shipments, **more: Any) -> Stream:
    given = {"on": {"id": "order_id"}, "after": 4 * HOUR, "delay": MINUTE, "prefix": "s_", **more}
    return hr.join(left, right, **given)


ON = "FROM orders o JOIN shipments s ON o.id = s.order_id AND "
BOUNDS: dict[str, tuple[timedelta, timedelta]] = {
    "s.ship_time BETWEEN o.order_time AND o.order_time + INTERVAL '4' HOUR": (NONE, 4 * HOUR),
    "o.order_time BETWEEN s.ship_time - INTERVAL '4' HOUR AND s.ship_time": (NONE, 4 * HOUR),
    "ship_time BETWEEN order_time - INTERVAL 1 HOUR AND order_time + INTERVAL '1 hour 30 minutes'":
        (HOUR, 90 * MINUTE),
    "s.ship_time >= o.order_time AND s.ship_time <= o.order_time + INTERVAL '4' HOUR":
        (NONE, 4 * HOUR),
    "o.order_time >= s.ship_time AND o.order_time < s.ship_time + INTERVAL '10' MINUTE":
        (10 * MINUTE - TICK, NONE),
    "(s.ship_time + INTERVAL '5' MINUTE) > o.order_time AND o.order_time >= s.ship_time":
        (5 * MINUTE - TICK, NONE),
    "o.order_time = s.ship_time": (NONE, NONE),
}  # fmt: skip


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_of_the_event_times_is_before_and_after(bound: str) -> None:
    before, after = BOUNDS[bound]
    wanted = joined(before=before, after=after)
    same(of(f"SELECT * {ON}{bound}", delay=MINUTE), wanted)
    flinks = f"SELECT * FROM orders o, shipments s WHERE o.id = s.order_id AND {bound}"
    same(of(flinks, delay=MINUTE), wanted)


FOUR = "s.ship_time BETWEEN o.order_time AND o.order_time + INTERVAL '4' HOUR"
PYTHON: dict[str, Callable[[], Stream]] = {
    f"SELECT * FROM orders o LEFT JOIN shipments s ON o.id = s.order_id AND {FOUR}":
        lambda: joined(how="left"),
    f"SELECT * FROM orders o RIGHT OUTER JOIN shipments s ON s.order_id = o.id AND {FOUR}":
        lambda: joined(how="right"),
    f"SELECT * FROM orders o FULL OUTER JOIN shipments AS s ON o.id = s.order_id AND {FOUR}":
        lambda: joined(how="full"),
    f"SELECT * FROM orders o LEFT ANTI JOIN shipments AS s ON o.id = s.order_id AND {FOUR}":
        lambda: joined(how="anti"),
    f"SELECT * {ON}{FOUR} AND o.price > 3 WHERE s.price > 5 AND o.currency = 'EUR'":
        lambda: joined(
            hr.filter(hr.filter(orders, "price > 3"), "currency = 'EUR'"),
            hr.filter(shipments, "price > 5"),
        ),
    "SELECT * FROM orders o LEFT JOIN shipments s ON o.id = s.order_id AND s.price > 5 "
    f"AND {FOUR} WHERE o.price > 3":
        lambda: joined(
            hr.filter(orders, "price > 3"), hr.filter(shipments, "price > 5"), how="left"
        ),
    f"SELECT o.id, o.price * 2 AS twice, s.price AS paid, ship_time {ON}{FOUR}":
        lambda: joined(
            hr.select(orders, "id", twice="price * 2"),
            hr.select(shipments, "order_id", paid="price", ship_time="`ship_time`"),
            prefix="",
        ),
    f"SELECT o.ID, s.ship_time AS sent {ON}{FOUR}":
        lambda: joined(
            hr.select(orders, "ID"), hr.select(shipments, "order_id", sent="ship_time"),
            on={"ID": "order_id"}, prefix="",
        ),
    f"SELECT currency, s.ship_time AS sent {ON}{FOUR}":
        lambda: joined(
            hr.select(orders, "currency", "id"),
            hr.select(shipments, "order_id", sent="ship_time"),
            prefix="",
        ),
    f"SELECT s.order_id, currency, o.id IS NULL AS odd {ON}{FOUR}":
        lambda: joined(
            hr.select(orders, order_id="`id`", currency="`currency`", odd="id IS NULL"),
            hr.select(shipments, "order_id"),
            on={"order_id": "order_id"},
            prefix="",
        ),
    "SELECT id, url, price FROM orders JOIN clicks USING (id) WHERE clicks.at >= order_time "
    "AND clicks.at <= order_time + INTERVAL '1' HOUR":
        lambda: hr.join(
            hr.select(orders, "id", "price"), hr.select(clicks, "id", "url"),
            on="id", after=HOUR, delay=MINUTE,
        ),
    "SELECT * FROM (SELECT id, order_time FROM orders WHERE price > 3) AS o "
    f"JOIN shipments s ON o.id = s.order_id AND {FOUR}":
        lambda: joined(hr.select(hr.filter(orders, "price > 3"), "id", "order_time"), prefix=""),
}  # fmt: skip


@pytest.mark.parametrize("query", PYTHON)
def test_a_join_of_streams_is_the_join_of_python(query: str) -> None:
    same(of(query, delay=MINUTE), PYTHON[query]())


LOOKUPS: dict[str, Callable[[], Stream]] = {
    "SELECT * FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.order_time AS r "
    "ON o.currency = r.currency":
        lambda: hr.enrich(orders, rates, on="currency", wait=MINUTE),
    "SELECT * FROM orders JOIN rates AS r FOR SYSTEM_TIME AS OF orders.order_time "
    "ON orders.currency = r.currency WHERE price > 3":
        lambda: hr.enrich(
            hr.filter(orders, "price > 3"), rates, on="currency", how="inner", wait=MINUTE
        ),
    "SELECT o.id, o.price, r.rate FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF order_time r "
    "USING (currency)":
        lambda: hr.enrich(
            hr.select(orders, "id", "price", "currency"),
            hr.table(hr.select(rate_changes, "currency", "rate"), key="currency"),
            on="currency", wait=MINUTE,
        ),
    "SELECT * FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.id = u.id":
        lambda: hr.enrich(clicks, users, on="id", how="inner", wait=MINUTE, prefix="u_"),
}  # fmt: skip


@pytest.mark.parametrize("query", LOOKUPS)
def test_a_table_is_looked_up_as_of_the_event_time(query: str) -> None:
    same(of(query, wait=MINUTE), LOOKUPS[query]())


def test_a_table_is_looked_up_as_it_is_now() -> None:
    query = (
        "SELECT * FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r "
        "ON o.currency = r.currency"
    )
    same(of(query), hr.enrich(orders, rates, on="currency", mode="latest"))


TABLES: dict[str, Callable[[], Stream]] = {
    "SELECT * FROM users u LEFT JOIN cities c ON u.city = c.code":
        lambda: hr.join_tables(users, cities, on={"city": "code"}, how="left", prefix="c_"),
    "SELECT u.id, city, u.name, c.name AS called FROM users u JOIN cities c ON u.city = c.code":
        lambda: hr.join_tables(
            hr.table(hr.select(user_changes, "id", "city", "name"), key="id"),
            hr.table(hr.select(city_changes, "code", called="name"), key="code"),
            on={"city": "code"},
        ),
    "SELECT u.id AS who, city FROM users u JOIN cities c ON u.city = c.code":
        lambda: hr.join_tables(
            hr.table(hr.select(user_changes, who="id", city="`city`"), key="who"),
            hr.table(hr.select(city_changes, "code"), key="code"),
            on={"city": "code"},
        ),
    "SELECT * FROM users u JOIN cities c ON u.city = c.code JOIN rates ON u.name = rates.currency":
        lambda: hr.join_tables(
            users, cities, rates, on=[{"city": "code"}, {"name": "currency"}], prefix=["c_", ""]
        ),
}  # fmt: skip


@pytest.mark.parametrize("query", TABLES)
def test_a_join_of_tables_is_that_of_python(query: str) -> None:
    same(of(query), TABLES[query]())


EQUAL = "FROM orders o JOIN shipments s ON o.id = s.order_id"
ALL: dict[str, tuple[str, str, str, str]] = {
    "no bound": (f"SELECT * {EQUAL}", "kept for ever", "JOIN", "BETWEEN"),
    "half a bound": (
        f"SELECT * {EQUAL} AND s.ship_time > o.order_time", "kept for ever", "JOIN", "BETWEEN",
    ),
    "only later": (
        f"SELECT * {EQUAL} AND s.ship_time BETWEEN o.order_time + INTERVAL 1 HOUR AND "
        "o.order_time + INTERVAL 2 HOURS", "the same moment", "JOIN", "filter in a query around",
    ),
    "no equality": (
        f"SELECT * FROM orders o JOIN shipments s ON {FOUR}", "no columns that are equal", "JOIN",
        "a.key = b.key",
    ),
    "unequal": (
        f"SELECT * {ON}{FOUR} AND o.price < s.price", "condition of this join", "o.price <",
        "in a query around it",
    ),
    "not the event time": (
        f"SELECT * {EQUAL} AND s.price BETWEEN o.price AND o.price + 3", "condition of this join",
        "s.price", "BETWEEN",
    ),
    "or": (f"SELECT * {ON}{FOUR} OR o.id = '1'", "condition of this join", "o.id = s", "BETWEEN"),
    "filtered after": (
        f"SELECT * FROM orders o LEFT JOIN shipments s ON o.id = s.order_id AND {FOUR} "
        "WHERE s.price > 1", "condition of this join", "s.price > 1", "in a query around it",
    ),
    "filtered before": (
        f"SELECT * FROM orders o LEFT JOIN shipments s ON o.id = s.order_id AND {FOUR} "
        "AND o.price > 1", "condition of this join", "o.price > 1", "before it is joined",
    ),
    "ambiguous": (
        f"SELECT id, price {ON}{FOUR}", "Several streams", "price FROM", "o.price or s.price",
    ),
    "unknown": (f"SELECT o.prize {ON}{FOUR}", "no column 'prize'", "o.prize", "'o.price'?"),
    "of both": (
        f"SELECT o.price - s.price AS gain {ON}{FOUR}", "columns of both", "o.price -", "compute",
    ),
    "equal twice": (
        f"SELECT o.id, s.order_id {ON}{FOUR}", "'id' of the first", "s.order_id FROM",
        "Select that",
    ),
    "computed before nulls": (
        f"SELECT o.id, coalesce(s.price, 0) AS paid FROM orders o LEFT JOIN shipments s "
        f"ON o.id = s.order_id AND {FOUR}", "null where no row matches", "coalesce", "around the",
    ),
    "other side of anti": (
        f"SELECT o.id, s.ship_time FROM orders o LEFT ANTI JOIN shipments s "
        f"ON o.id = s.order_id AND {FOUR}", "only rows of the first", "s.ship_time FROM", "its col",
    ),
    "star with others": (
        f"SELECT o.*, s.price {ON}{FOUR}", "cannot be selected with others", "o.*", "name the col",
    ),
    "cross": ("SELECT * FROM orders CROSS JOIN shipments", "no CROSS JOIN", "CROSS", "LEFT JOIN"),
    "semi": (
        f"SELECT * FROM orders o LEFT SEMI JOIN shipments s ON o.id = s.order_id AND {FOUR}",
        "no LEFT SEMI JOIN", "LEFT", "LEFT ANTI JOIN",
    ),
    "three": (
        f"SELECT * {ON}{FOUR} JOIN clicks c ON o.id = c.id", "are two steps", "JOIN clicks",
        "in brackets",
    ),
    "itself": (
        "SELECT * FROM orders JOIN orders ON id = id", "called 'orders'", "orders ON", "with AS",
    ),
    "aggregated": (
        f"SELECT o.currency, COUNT(*) AS n {ON}{FOUR} GROUP BY o.currency, "
        "TUMBLE(order_time, INTERVAL 1 HOUR)", "are two steps", "o.currency, TUMBLE",
        "Aggregate in a query around the join",
    ),
    "windows": (
        "SELECT * FROM TABLE(TUMBLE(TABLE orders, INTERVAL 1 HOUR)) o JOIN shipments s "
        "ON o.id = s.order_id", "Windows cannot be joined", "TUMBLE", "Bound the times",
    ),
    "table without time": (
        "SELECT * FROM orders o JOIN rates r ON o.currency = r.currency", "say of which time",
        "rates r ON", "FOR SYSTEM_TIME AS OF",
    ),
    "stream with time": (
        "SELECT * FROM orders o JOIN shipments FOR SYSTEM_TIME AS OF o.order_time s "
        "ON o.id = s.order_id", "looks up a table", "shipments FOR", "PRIMARY KEY",
    ),
    "another time": (
        "SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.price r "
        "ON o.currency = r.currency", "'o.price' is not it", "o.price", "order_time",
    ),
    "right lookup": (
        "SELECT * FROM orders o RIGHT JOIN rates FOR SYSTEM_TIME AS OF o.order_time r "
        "ON o.currency = r.currency", "for each row", "RIGHT", "LEFT JOIN",
    ),
    "table first": (
        "SELECT * FROM rates r JOIN orders o ON o.currency = r.currency", "joined to a stream",
        "orders o ON", "the stream first",
    ),
    "filtered table": (
        "SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.order_time r "
        "ON o.currency = r.currency WHERE r.rate > 1", "condition of this join", "r.rate > 1",
        "in a query around it",
    ),
    "table alone": ("SELECT * FROM rates", "is a table", "rates", "Join it"),
    "key of a table": (
        "SELECT u.name, city FROM users u JOIN cities c ON u.city = c.code", "The key of a table",
        "SELECT", "Select all of it",
    ),
    "some of three": (
        "SELECT u.id FROM users u JOIN cities c ON u.city = c.code JOIN rates r ON u.name = "
        "r.currency", "as they are", "SELECT", "SELECT *",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_join_that_cannot_be_is_refused_at_its_place(name: str) -> None:
    query, says, at, advises = ALL[name]
    with pytest.raises(InvalidPipeline) as caught:
        of(query, delay=MINUTE, wait=MINUTE)
    assert says in caught.value.message
    assert advises in caught.value.hint
    assert f"Line 1, column {f'{query};'.rindex(at) + 1} of the SQL" in caught.value.hint


@pytest.mark.parametrize(
    ("need", "query"), [("delay", next(iter(PYTHON))), ("wait", next(iter(LOOKUPS)))]
)
def test_a_join_needs_a_span_that_only_the_user_knows(need: str, query: str) -> None:
    with pytest.raises(InvalidPipeline, match=f"does not say its {need}") as caught:
        of(query)
    assert f"Add {need}=timedelta(...)" in caught.value.hint
    with pytest.raises(InvalidPipeline, match="does not use 'ttl'"):
        of(query, **{need: MINUTE}, ttl=MINUTE)


@pytest.mark.parametrize("query", [*PYTHON, *LOOKUPS, *TABLES])
def test_a_query_without_one_of_its_words_is_a_query_or_is_refused(query: str) -> None:
    words = re.findall(r"'[^']*'|\w+|[^\w\s]", query)
    for at in range(len(words)):
        with contextlib.suppress(InvalidPipeline):
            of(" ".join([*words[:at], *words[at + 1 :]]), delay=MINUTE)
