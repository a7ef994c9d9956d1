"""Steps that read the results of other steps: each row once, to the end of the chain in one run."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.testing import START, Results, ScriptedLog, scripted_log
from tests.spark import shared

Row = dict[str, Any]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
IN_ORDER = hr.Lateness(delay=timedelta(0), grace=timedelta(0))
PATIENT = hr.Lateness(delay=timedelta(minutes=10), grace=timedelta(0))

app = hr.App("shop")
clicks = app.topic(
    "clicks", schema="id bigint, user string, page string, ts timestamp", event_time="ts"
)
users = app.topic(
    "users", schema="user string, country string, since timestamp", event_time="since"
)
orders = app.topic("orders", schema="click bigint, amount bigint, at timestamp", event_time="at")


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=START + timedelta(hours=3)) as log:
        yield log


def some_clicks(count: int, seed: int = 5) -> list[Row]:
    """Clicks up to five minutes out of order, over three hours."""
    dice = random.Random(seed)
    step = timedelta(hours=3) / count
    return [
        {
            "id": n,
            "user": dice.choice("abc"),
            "page": dice.choice(["home", "cart"]),
            "ts": START + n * step - timedelta(seconds=dice.randrange(300)),
        }
        for n in range(count)
    ]


def write_in_commits(log: ScriptedLog, topic: Any, rows: list[Row], size: int = 60) -> None:
    for first in range(0, len(rows), size):
        log.write(topic, *rows[first : first + size])


def floor(moment: datetime, by: timedelta) -> datetime:
    return moment - (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)) % by


def shown(results: Results, view: str, *columns: str) -> dict[Any, Any]:
    *keys, value = columns
    return {tuple(row[key] for key in keys): row[value] for row in results.view(view)}


def written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def test_an_enriched_stream_is_aggregated_in_one_run(log: ScriptedLog) -> None:
    app = hr.App("enriched")
    known = hr.enrich(
        clicks, hr.table(users, key="user"), on={"user": "user"}, how="inner", wait=MINUTE
    )
    per_country = hr.aggregate(
        hr.filter(known, "page = 'home'"),
        by="country", window=hr.tumbling(MINUTE), lateness=PATIENT, hits=hr.count(),
    )  # fmt: skip
    app.view("per_country", per_country)
    countries = {"a": "DE", "b": "PT"}
    for user, country in countries.items():
        log.write(users, {"user": user, "country": country, "since": START - HOUR})
    rows = some_clicks(240)
    write_in_commits(log, clicks, rows)
    log.write(users, {"user": "z", "country": "XX", "since": START + timedelta(hours=3)})

    results = log.run(app, spark=shared())

    expected = Counter(
        (countries[row["user"]], written(floor(row["ts"], MINUTE)))
        for row in rows
        if row["user"] in countries and row["page"] == "home"
    )
    assert shown(results, "per_country", "country", "window_start", "hits") == dict(expected)
    assert [step.step for step in results.steps] == ["per_country.part", "per_country"]
    assert all(step.lag == 0 and step.law.holds for step in results.steps)


def test_a_window_over_a_window_counts_final_results_once(log: ScriptedLog) -> None:
    app = hr.App("windows")
    per_minute = hr.aggregate(
        clicks, by="page", window=hr.tumbling(MINUTE), lateness=PATIENT, hits=hr.count()
    )
    per_hour = hr.aggregate(
        per_minute, by="page", window=hr.tumbling(HOUR), lateness=IN_ORDER,
        minutes=hr.count(), hits=hr.sum("hits"), busiest=hr.max("hits"),
    )  # fmt: skip
    app.view("per_hour", per_hour)
    rows = some_clicks(240)
    write_in_commits(log, clicks, rows)

    results = log.run(app, spark=shared(), max_commits=3)

    latest = max(row["ts"] for row in rows)
    per_page: Counter[tuple[str, datetime]] = Counter()
    for row in rows:
        start = floor(row["ts"], MINUTE)
        if start + MINUTE + PATIENT.delay <= latest:
            per_page[row["page"], start] += 1
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (page, start), hits in per_page.items():
        expected[page, written(floor(start, HOUR))].append(hits)
    found = {
        (row["page"], row["window_start"]): [row["minutes"], row["hits"], row["busiest"]]
        for row in results.view("per_hour")
    }
    assert found == {key: [len(h), sum(h), max(h)] for key, h in expected.items()}
    assert len({start for _, start in found}) == 4
    assert not results.law("per_hour").late, "windows become final in the order of their ends"


def test_a_join_is_kept_as_a_view_of_its_latest_rows(log: ScriptedLog) -> None:
    app = hr.App("joined")
    bought = hr.join(clicks, orders, on={"id": "click"}, after=HOUR, delay=MINUTE)
    app.view("bought", hr.select(bought, "user", "id", "amount", "joined_at"), key="user")
    app.publish("joined.late", bought.late)
    for number, user in enumerate("aabb"):
        ts = START + number * MINUTE
        log.write(clicks, {"id": number, "user": user, "page": "cart", "ts": ts})
        log.write(orders, {"click": number, "amount": number * 10, "at": ts + 2 * MINUTE})
    log.write(clicks, {"id": 9, "user": "a", "page": "cart", "ts": START - HOUR})

    results = log.run(app, spark=shared())

    assert shown(results, "bought", "user", "amount") == {("a",): 10, ("b",): 30}
    assert [record.value["id"] for record in log.records("joined.late") if record.value] == [9]
    assert [step.step for step in results.steps] == ["bought.part", "bought"]
