"""Alerts on a log: lookups, Python rules, hot keys, and stored alert ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.store import open_views
from headrace.testing import Results, ScriptedLog, scripted_log
from tests.property.flagging import JUDGES, RULES, check_alerts
from tests.spark import shared, shuffling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def declare(
    rules: dict[str, Any],
    *,
    lookup: bool = False,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[hr.App, hr.Stream]:
    app = hr.App("cards")
    payments = app.topic(
        "payments",
        schema="payment string, card string, amount int, at timestamp",
        event_time="at",
        settings=settings,
    )
    stream: hr.Stream = payments
    if lookup:
        owners = app.topic(
            "owners",
            schema="card string, usual int, changed timestamp",
            key="card",
            event_time="changed",
            settings={"cleanup": "compact"},
        )
        table = hr.table(hr.select(owners, "card", "usual"), key="card")
        stream = hr.enrich(payments, table, on="card", mode="latest", prefix="owner_")
    given: dict[str, Any] = {"within": 60 * SECOND, "delay": 10 * SECOND, **more}
    step = hr.alerts(stream, by="card", event="payment", rules=rules, **given)
    app.publish("alerts", step)
    app.publish("late", step.late)
    return app, step


def pay(name: str | None, at: float, amount: int = 1, card: str | None = "x") -> dict[str, Any]:
    return {"payment": name, "card": card, "amount": amount, "at": NOON + at * SECOND}


def own(card: str, usual: int, at: float = 0) -> dict[str, Any]:
    return {"card": card, "usual": usual, "changed": NOON + at * SECOND}


def alert_ids(results: Results) -> list[str]:
    return [row["alert"] for row in results.topic("alerts")]


def start(app: hr.App, log: ScriptedLog) -> None:
    for topic in app.topics.values():
        log.log.ensure_topic(topic)


@pytest.mark.slow
def test_rules_see_what_a_table_says_when_an_event_is_looked_at() -> None:
    app, _ = declare(
        {"dear": hr.rule("amount > 2 * owner_usual", value="owner_usual")}, lookup=True
    )
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        start(app, log)
        log.write("owners", own("x", 10), own("y", 100))
        log.write("payments", pay("a", 1, 30), pay("b", 2, 30, "y"), pay("c", 3, 30, "unknown"))
        results = log.run(app, spark=shuffling(2))
        assert alert_ids(results) == ["a:dear"]
        assert results.topic("alerts")[0]["value"] == 10.0
        assert results.law("alerts").rows == 3, "a table is no stream of events"

        log.write("owners", own("y", 9, 10))
        log.write("owners", own("x", 1, -10))  # valid from earlier, so not the newest
        log.write("payments", pay("d", 4, 21), pay("e", 5, 19, "y"))
        assert alert_ids(log.run(app, spark=shuffling(2))) == ["a:dear", "d:dear", "e:dear"]

        with log.log.producer() as producer:
            producer.send("owners", None, key="x")
        log.write("payments", pay("f", 6, 99))
        assert alert_ids(log.run(app, spark=shuffling(2)))[3:] == [], (
            "nothing is known of it any more"
        )


def test_a_rule_may_call_a_vectorised_function_in_python() -> None:
    shared()

    def score() -> Column:
        @arrow_udf("double")  # type: ignore[untyped-decorator]
        def model(amount: pa.Array, often: pa.Array) -> pa.Array:
            return pc.divide(pc.multiply(amount, often).cast(pa.float64()), 100)

        made: Column = model("amount", F.size("recent"))
        return made

    app, _ = declare({"model": hr.rule(lambda: score() > 0.5, value=score)})
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        start(app, log)
        log.write("payments", pay("a", 1, 40), pay("b", 2, 40), pay("c", 3, 10))
        results = log.run(app, spark=shuffling(2))
        assert [(row["alert"], row["value"]) for row in results.topic("alerts")] == [
            ("b:model", 0.8)
        ]


def test_what_spark_cannot_do_is_told_at_the_users_line() -> None:
    app, step = declare({"odd": "aggregate(recent, 0, (sum, r) -> sum + r.amonut) > 3"})
    with scripted_log() as log, pytest.raises(InvalidPipeline) as refused:
        log.run(app, spark=shuffling(2))
    assert "amonut" in refused.value.message
    assert str(step.where) in refused.value.hint


def test_an_event_without_an_id_is_known_by_its_place_in_the_log() -> None:
    app, _ = declare({"big": "amount > 5"})
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        start(app, log)
        log.write("payments", pay("a", 1), pay(None, 2, 9), pay(None, 3, 9, None))
        results = log.run(app, spark=shuffling(2))
        assert alert_ids(results) == ["0/1:big", "0/2:big"]
        assert [row["evidence"] for row in results.topic("alerts")] == [["a", None], [None]]


@pytest.mark.slow
def test_of_a_hot_key_rules_see_the_newest_and_alerts_are_cut() -> None:
    app, _ = declare({"sum": hr.rule("size(recent) >= 3", value="size(recent)")}, limit=50)
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        start(app, log)
        for n in range(8):
            log.write("payments", *(pay(f"{n}-{m}", n + m / 100) for m in range(30)))
        results = log.run(app, spark=shuffling(2), max_commits=3)
        rows = results.topic("alerts")
        assert len(rows) == 238
        assert [row["value"] for row in rows] == [float(min(n, 50)) for n in range(3, 241)]
        assert [row["cut"] for row in rows] == [n > 50 for n in range(3, 241)]
        assert all(row["evidence"][-1] == row["payment"] for row in rows), "the newest is itself"


@pytest.mark.slow
def test_what_is_remembered_is_bounded_however_many_alerts_there_are() -> None:
    app, _ = declare({"any": "true"})
    held: list[int] = []
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        start(app, log)
        for n in range(40):
            log.write("payments", *(pay(f"{n}-{m}", 5 * n) for m in range(20)))

        def count(point: str) -> None:
            if point == "batch ended":
                with open_views(log.log.url, app="cards") as views:
                    held.extend(
                        row[0] for row in
                        views.query('SELECT count(*) FROM "cards"."_headrace_alerted_alerts"').rows
                    )  # fmt: skip

        results = log.run(app, spark=shuffling(1), max_commits=4, crash_point=count)
        assert len(alert_ids(results)) == len(set(alert_ids(results))) == 800
    # Events of the last ten seconds, and of the newest moment.
    assert max(held) <= 40
    assert len(held) >= 10


def test_rows_that_are_made_of_one_event_are_in_its_order() -> None:
    app = hr.App("carts")
    carts = app.topic(
        "carts",
        schema="cart string, who string, cut int, items array<int>, at timestamp",
        event_time="at",
    )
    items = hr.explode(carts, "items", into="item")
    both = hr.merge(items, hr.filter(items, "item > 8"))
    step = hr.alerts(
        both, by="who", event="cart", within=60 * SECOND, delay=10 * SECOND,
        rules={"down": hr.rule("try_element_at(recent, -2).item > item", value="item")},
    )  # fmt: skip
    app.publish("alerts", step)
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        log.write(carts, {"cart": "a", "who": "x", "cut": 1, "items": [1, 3, 9], "at": NOON})
        log.write(carts, {"cart": "b", "who": "x", "cut": 1, "items": [9, 8], "at": NOON + SECOND})
        results = log.run(app, spark=shuffling(2))
        # Rows of one branch precede those of the next: 1 3 9, 9, and 9 8, 9.
        assert [(row["alert"], row["value"]) for row in results.topic("alerts")] == [("b:down", 8)]
        assert results.law("alerts").counted == 7


@pytest.mark.slow
def test_a_topic_that_goes_by_arrival_has_alerts_too() -> None:
    app, _ = declare({"many": "size(recent) > 2"}, settings={"frontier": "arrival"})
    with scripted_log(start=NOON) as log:
        start(app, log)
        log.write("payments", pay("a", 0), pay("b", -3))
        log.pass_time(5 * SECOND)
        log.write("payments", pay("c", 4), pay("late", -30))
        log.pass_time(60 * SECOND)
        log.write("payments", pay("d", 61))
        results = log.run(app, spark=shuffling(2), max_commits=1)
        assert alert_ids(results) == ["c:many"]
        assert [row["payment"] for row in results.topic("late")] == ["late"]
        assert results.law("alerts").holds


@pytest.mark.parametrize("max_commits", [3, 1_000], ids=["in batches", "at once"])
def test_what_late_events_ids_used_again_and_both_ends_come_to_is_the_oracles(
    max_commits: int,
) -> None:
    app = hr.App("flags")
    events = app.topic("events", schema="id string, k string, n int, at timestamp", event_time="at")
    step = hr.alerts(events, by="k", event="id", within=10 * SECOND, delay=60 * SECOND, rules=RULES)
    app.publish("alerts", step)
    app.publish("late", step.late)
    script: list[list[tuple[str, int, float]]] = [
        [("a", 1, 0), ("b", 2, 5)],
        [("c", 3, 10)],  # the first is just within its recent past
        [("d", 1, 7)],  # arrives after a later event, and is in its recent past
        [("e", 4, 10.000001), ("f", 4, 5)],
        [("g", 1, 70)],  # the first can still be evaluated
        [("h", 5, 11), ("i", 0, 10.5)],
        [("z", 1, 300)],
        [("c", 3, 301), ("y", 2, 240), ("x", 1, 239.999999)],  # a repeated id, just late, in time
        [("w", 9, 302), ("c", 3, 302)],
    ]
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        for commit in script:
            rows = [{"id": i, "k": "k", "n": n, "at": NOON + at * SECOND} for i, n, at in commit]
            log.write(events, *rows)
        results = log.run(app, spark=shuffling(2), max_commits=max_commits)
        found = check_alerts("alerts", step, JUDGES, results, late="late")
    alert_ids = [row["alert"] for row in found.alerts]
    assert alert_ids.count("c:many") == 2, "each of its events has one alert"
    assert len(found.late) == 2
    assert found.again
