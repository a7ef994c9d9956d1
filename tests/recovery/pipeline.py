"""A pipeline to kill, with steps of every kind, and rows for it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import headrace as hr
from headrace.operators.dedup.declare import Keep
from headrace.schema.ddl import parse_schema
from headrace.testing import Results, ScriptedLog
from tests.property import folds
from tests.property.distinct import check_distinct
from tests.property.flagging import JUDGES, RULES, check_alerts
from tests.property.folding import check_stateful
from tests.property.judging import (
    check_changelog,
    check_dead,
    check_late,
    check_law,
    check_published,
    check_said,
    check_view,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATENESS = hr.Lateness(10 * SECOND, 60 * SECOND)
TOPIC = "orders"
SCHEMA = "shop string, item string, price decimal(10,2), at timestamp"

Steps = dict[str, hr.Aggregation]
Which = Literal["small", "grid", "own", "distinct", "state", "alerts"]


def declare(name: str, which: Which = "grid") -> tuple[hr.App, Steps]:
    """An application with a name and topics of its own."""
    app = hr.App(name)
    orders = app.topic(TOPIC, schema=SCHEMA, key="shop", event_time="at", partitions=2)
    if which == "distinct":
        return _distinct(app, orders), {}
    if which == "state":
        return _with_state(app, orders), {}
    if which == "alerts":
        return _alerts(app, orders), {}
    steps = _own(orders) if which == "own" else _on_a_grid(orders)
    if which == "small":
        steps = {"sales": steps["sales"]}
    for step, made in steps.items():
        app.view(step, made)
        app.publish(f"{name}.{step}", made)
        app.publish(f"{name}.{step}.late", made.late)
        if made.emit == "updates":
            app.publish(f"{name}.{step}.pairs", made, early=15 * SECOND, retractions=True)
    if which == "grid":
        app.publish(f"{name}.gifts", hr.select(hr.filter(orders, "item = 'gift'"), "shop", "at"))
    return app, steps


def _on_a_grid(orders: hr.Stream) -> Steps:
    sales = hr.aggregate(
        hr.filter(orders, "item != 'gift'"),
        by="shop",
        window=hr.tumbling(60 * SECOND),
        lateness=LATENESS,
        orders=hr.count(),
        revenue=hr.sum("price"),
        first=hr.first("item"),
    )
    rush = hr.aggregate(
        orders,
        by="item",
        window=hr.hopping(60 * SECOND, 20 * SECOND),
        lateness=LATENESS,
        emit="final",
        orders=hr.count(),
        shops=hr.distinct("shop"),
    )
    return {"sales": sales, "rush": rush}


def _own(orders: hr.Stream) -> Steps:
    """Sliding windows and sessions."""
    visits = hr.aggregate(
        hr.filter(orders, "item != 'gift'"),
        by="shop",
        window=hr.session(8 * SECOND),
        lateness=LATENESS,
        orders=hr.count(),
        revenue=hr.sum("price"),
        first=hr.first("item"),
        items=hr.distinct("item"),
    )
    closed = hr.aggregate(
        orders,
        by="item",
        window=hr.session(3 * SECOND),
        lateness=LATENESS,
        emit="final",
        orders=hr.count(),
        dearest=hr.max("price"),
    )
    lately = hr.aggregate(
        orders,
        by="item",
        window=hr.sliding(30 * SECOND),
        lateness=LATENESS,
        orders=hr.count(),
        revenue=hr.sum("price"),
        shops=hr.distinct("shop"),
    )
    return {"visits": visits, "closed": closed, "lately": lately}


def _distinct(app: hr.App, orders: hr.Stream) -> hr.App:
    """Rows without duplicates, by a key that is null at times."""
    named = hr.derive(orders, item="nullif(item, 'gift')")
    for keep in get_args(Keep):
        step = hr.deduplicate(
            named, by=["shop", "item"], ttl=40 * SECOND, keep=keep, delay=30 * SECOND
        )
        app.publish(f"{app.name}.{keep}", step)
        app.publish(f"{app.name}.{keep}.late", step.late)
    return app


def _with_state(app: hr.App, orders: hr.Stream) -> hr.App:
    """Python state with waiting rows and timers, and a pattern."""
    rows = hr.select(hr.filter(orders, "item != 'gift'"), "at", k="shop", n="length(item)")
    delay, ttl = LATENESS.delay, 100 * SECOND
    totals = hr.stateful(
        rows, folds.totals, by="k", state=folds.TOTALS_STATE, output=folds.TOTALS,
        delay=delay, ttl=ttl, buckets=3,
    )  # fmt: skip
    visits = hr.stateful(
        rows, folds.visits, by="k", state=folds.VISITS_STATE, output=folds.VISITS,
        delay=delay, ttl=ttl, buckets=2,
    )  # fmt: skip
    wanted = [("pen", "item = 'pen'", 2), ("ink", "item = 'ink'", 1)]
    pairs = hr.pattern(orders, by="shop", steps=wanted, within=60 * SECOND, delay=delay)
    for name, step in (("totals", totals), ("visits", visits), ("pairs", pairs)):
        app.publish(f"{app.name}.{name}", step)
        app.publish(f"{app.name}.{name}.late", step.late)
    return app


def _alerts(app: hr.App, orders: hr.Stream) -> hr.App:
    """Rules that a late event makes true or false."""
    step = hr.alerts(
        hr.select(orders, "shop", "at", n="length(item)", id="price"),
        by="shop",
        event="id",
        within=30 * SECOND,
        delay=60 * SECOND,
        limit=6,
        rules=RULES,
    )
    app.publish(f"{app.name}.alerts", step)
    app.publish(f"{app.name}.alerts.late", step.late)
    return app


_COLUMNS = {
    "totals": parse_schema("at timestamp, k string, n int"),
    "visits": parse_schema("at timestamp, k string, n int"),
    "pairs": parse_schema("shop string, at timestamp, pen boolean, ink boolean"),
}


class Feed:
    """Endless rows for the pipeline: mostly in order, some late, some without an event time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._moment = NOW - timedelta(hours=6)

    def commit(self) -> list[dict[str, Any]]:
        self._moment += self._random.choice([1, 5, 15]) * SECOND
        return [self._row() for _ in range(self._random.randint(1, 8))]

    def _row(self) -> dict[str, Any]:
        chance = self._random
        back = chance.choice([0, 0, 0, 1, 3, 10, 30, 70, 90, 300])
        at: datetime | None = self._moment - back * SECOND
        if chance.random() < 0.05:
            at = chance.choice([None, NOW + timedelta(days=2)])
        price = f"{chance.randint(1, 9999) / 100:.2f}"
        return {
            "shop": chance.choice("abc"),
            "item": chance.choice(["pen", "ink", "gift"]),
            "price": price,
            "at": at,
        }


def create_topic(log: ScriptedLog) -> None:
    log.log.create_topic(TOPIC, schema=SCHEMA, key="shop", event_time="at", partitions=2)


def feed(log: ScriptedLog, source: Feed, commits: int) -> None:
    for _ in range(commits):
        log.write(TOPIC, *source.commit())
        log.pass_time(4 * SECOND)


def judge(app: hr.App, steps: Steps, results: Results) -> None:
    """Check that all views and topics of the application are the oracle's."""
    for topic, output in app.outputs.items():
        if isinstance(output.stream, hr.Alerts):
            check_alerts(topic, output.stream, JUDGES, results, late=f"{topic}.late")
        if isinstance(output.stream, hr.Stateful):
            columns = _COLUMNS[topic.removeprefix(f"{app.name}.")]
            check_stateful(topic, output.stream, results, columns, late=f"{topic}.late")
    for name, step in steps.items():
        check_view(name, step, results)
        check_law(name, step, results)
        check_late(f"{app.name}.{name}.late", step, results)
        check_dead(app.name, name, step, results)
        check_published(f"{app.name}.{name}", step, results)
        check_changelog(f"{app.name}.{name}.changes", step, results, name)
        if step.emit == "updates":
            check_said(app.outputs[f"{app.name}.{name}.pairs"], name, results)
    for topic, output in app.outputs.items():
        if isinstance(output.stream, hr.Deduplicated):
            check_distinct(topic, output.stream, results, late=f"{topic}.late")


def everything(app: hr.App, results: Results) -> dict[str, Any]:
    """All results that must not depend on batches, partitions or crashes, as comparable values."""
    kept: dict[str, Any] = {name: results.view(name) for name in app.views}
    # The set of early panes depends on the batches.
    published = {
        topic.removeprefix(f"{app.name}.")
        for topic, output in app.outputs.items()
        if not isinstance(output.stream, hr.Aggregation) or output.stream.emit == "final"
    }
    for topic in (*published, "dead"):
        rows = results.topic(f"{app.name}.{topic}")
        kept[topic] = Counter(repr(row).replace(f"{app.name}.", "") for row in rows)
    return kept
