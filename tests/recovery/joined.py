"""An application with several kinds of joins, and reproducible input for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal

import headrace as hr
from headrace.testing import Results, ScriptedLog
from tests.property.joining import check_join, counted
from tests.property.test_tables import check, last_of_each

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


Part = Literal["pairs", "known"]


def declare(name: str, parts: Sequence[Part] = ("pairs", "known")) -> hr.App:
    """Clicks in an outer join with impressions, and with the users as of then."""
    app = hr.App(name)
    shown = app.topic("shown", schema="ad int, n int, at timestamp", event_time="at", partitions=2)
    clicks = app.topic("clicks", schema="ad int, who string, at timestamp", event_time="at")
    users = app.topic(
        "users", schema="id string, name string, gone boolean, at timestamp", key="id",
        event_time="at",
    )  # fmt: skip
    pairs = hr.join(
        shown, clicks, on="ad", before=5 * SECOND, after=30 * SECOND, how="full",
        delay=10 * SECOND, prefix="click_",
    )  # fmt: skip
    if "pairs" in parts:
        app.publish(f"{name}.pairs", pairs)
        app.publish(f"{name}.late", pairs.late)
    table = hr.table(users, key="id", deleted="gone")
    known = hr.enrich(
        clicks, table, on={"who": "id"}, wait=20 * SECOND, amend=60 * SECOND, prefix="user_"
    )
    if "known" in parts:
        app.publish(f"{name}.known", known)
    return app


def feed(log: ScriptedLog, app: hr.App, seed: int, commits: int, begin: int = 0) -> None:
    """Commits of all topics, with event times out of order."""
    random = Random(seed)
    for declared in app.topics.values():
        log.log.ensure_topic(declared)
    for number in range(begin, begin + commits):
        moment = NOW - timedelta(hours=1) + number * 4 * SECOND
        topic = random.choice(["shown", "clicks", "users"])
        rows: list[dict[str, Any]] = []
        for _ in range(random.randint(1, 6)):
            at = moment - random.choice([0, 1, 3, 9, 12, 40]) * SECOND
            row: dict[str, Any] = {"at": at, "ad": random.randrange(6)}
            match topic:
                case "shown":
                    row["n"] = number
                case "clicks":
                    row["who"] = random.choice(["ann", "bob", None])
                case _:
                    name = random.choice(["x", "y", "z"])
                    row = {"id": random.choice(["ann", "bob"]), "name": name, "at": at}
                    row["gone"] = random.random() < 0.1
            rows.append(row)
        log.write(topic, *rows)


def judge(app: hr.App, results: Results) -> dict[str, Counter[str]]:
    """Compare all results with the oracle's, and return them in a comparable form."""
    name, found = app.name, {}
    for topic, output in app.outputs.items():
        match output.stream:
            case hr.Join() as pairs:
                check_join(topic, pairs, results, late=f"{name}.late")
                found["pairs"] = counted(results.topic(topic))
                found["late"] = counted(results.topic(f"{name}.late"))
            case hr.Enriched() as known:
                check(known, results, topic)
                found["known"] = counted(last_of_each(known, results.topic(topic)))
    return found
