"""Findings of the doctor from the log alone: no pipeline has to have run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.application.doctor import examine
from headrace.application.doctor.changes import MissingEvents
from headrace.application.doctor.duplicates import Duplicates
from headrace.log.sample import newest
from headrace.pipeline.stream import Source
from headrace.testing import ScriptedLog, scripted_log

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = "item string, price double, at timestamp"
DUPLICATES, MISSING = "duplicates", "events missing after a schema change"


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


def shop() -> tuple[hr.App, Source]:
    app = hr.App("shop")
    orders = app.topic("orders", schema=SCHEMA, key="item", event_time="at")
    sales = hr.aggregate(
        hr.filter(orders, "price > 0"),
        by="item",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(seconds=10), timedelta(0)),
        revenue=hr.sum("price"),
    )
    app.view("sales", sales)
    return app, orders


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOON + timedelta(minutes=10)) as scripted:
        yield scripted


def orders_at(*seconds: float, price: float | None = 1.5) -> list[dict[str, object]]:
    return [{"item": "pen", "price": price, "at": second(n)} for n in seconds]


# Duplicates


def test_events_that_were_sent_again_are_duplicates(log: ScriptedLog) -> None:
    app, orders = shop()
    for start in (0, 10, 20):
        log.write(orders, *orders_at(*(start + n + 0.25 for n in range(5))))
    log.write(orders, *orders_at(*(10 + n + 0.25 for n in range(5))))  # a retry without an id
    log.write(orders, *orders_at(30.5))
    found = examine(app, log.log).finding(DUPLICATES)
    assert isinstance(found, Duplicates)
    assert (found.subject, found.events, found.copies, found.rows) == ("orders", 5, 5, 21)
    assert found.steps == ("sales",)
    assert [(e.times, e.first, e.last) for e in found.examples] == [(2, 2, 4)] * 3
    assert "5 rows (24% of all 21 rows) are equal to an earlier one" in found.evidence[0]
    assert "log.producer(id=...)" in found.remedy


def test_equal_keys_and_a_retry_that_the_log_took_once_are_no_duplicates(log: ScriptedLog) -> None:
    app, orders = shop()
    log.write(orders, *orders_at(*(n + 0.25 for n in range(20))))
    log.write(orders, *orders_at(*(n + 0.25 for n in range(20)), price=2.5))
    rows = pa.Table.from_pylist(orders_at(30.25, 31.25), log.log.topic("orders").topic.schema)
    with log.log.producer(id="till-7") as producer:
        first = producer.append("orders", rows, sequence=0)
        again = producer.append("orders", rows, sequence=0)
    assert again.duplicate
    assert again.commit == first.commit
    assert examine(app, log.log).healthy


def test_events_told_apart_by_the_second_only_may_be_equal_now_and_then(log: ScriptedLog) -> None:
    app, orders = shop()
    for n in range(20):
        log.write(orders, *orders_at(n))
    log.write(orders, *orders_at(19))
    assert examine(app, log.log).finding(DUPLICATES) is None


# A schema that has changed


def test_a_column_that_is_null_since_a_commit_was_renamed(log: ScriptedLog) -> None:
    app, orders = shop()
    log.write(orders, *orders_at(*(n + 0.5 for n in range(20))))
    log.log.alter_topic("orders", schema=f"{SCHEMA}, amount double")
    later = [{"item": "pen", "amount": 2.0, "at": second(20 + n)} for n in range(20)]
    turned = log.write(orders, *later[:10])
    log.write(orders, *later[10:])
    found = examine(app, log.log).finding(MISSING)
    assert isinstance(found, MissingEvents)
    assert (found.topic, found.column, found.turn.commit) == ("orders", "price", turned)
    assert (found.turn.before, found.turn.after, found.turn.rows) == (0.0, 1.0, 20)
    assert found.instead == "amount"
    assert "the filter 'price > 0' drops rows where it is null" in found.evidence
    assert "coalesce(price, amount)" in found.remedy


def test_a_column_that_is_now_and_then_or_always_null_has_not_changed(log: ScriptedLog) -> None:
    app, orders = shop()
    log.log.ensure_topic(orders.topic)
    log.log.alter_topic("orders", schema=f"{SCHEMA}, note string")
    for start in range(0, 60, 10):
        rows = orders_at(*(start + n + 0.5 for n in range(10)))
        for row in rows[::3]:
            row["price"] = None
        log.write(orders, *rows)
    assert examine(app, log.log).healthy


def test_a_column_that_no_step_uses_may_go(log: ScriptedLog) -> None:
    app, orders = shop()
    log.log.ensure_topic(orders.topic)
    log.log.alter_topic("orders", schema=f"{SCHEMA}, note string")
    rows = orders_at(*(n + 0.5 for n in range(40)))
    log.write(orders, *(row | {"note": "hello"} for row in rows[:20]))
    log.write(orders, *rows[20:])
    assert examine(app, log.log).healthy


def test_event_times_of_another_unit_since_a_commit_are_seen(log: ScriptedLog) -> None:
    app, orders = shop()
    log.write(orders, *orders_at(*(n + 0.5 for n in range(20))))
    turned = log.write(orders, *orders_at(*(10**9 + n for n in range(20))))
    found = examine(app, log.log).finding(MISSING)
    assert isinstance(found, MissingEvents)
    assert (found.column, found.turn.commit) == ("at", turned)
    assert "in the future" in found.what
    assert found.effects[0] == "rows without a valid event time are dead letters"


# Number of rows examined


def test_no_more_than_the_newest_rows_are_looked_at(log: ScriptedLog) -> None:
    app, orders = shop()
    for start in range(0, 50, 10):
        log.write(orders, *orders_at(*(start + n + 0.5 for n in range(10))))
    sample = newest(log.log, "orders", 25)
    assert [commit.number for commit in sample.commits] == [4, 5]
    assert (sample.rows, sample.total) == (20, 50)
    assert examine(app, log.log, rows=25).looked_at == (
        "the newest 20 of 50 rows of topic orders, in 2 commits",
    )
    assert newest(log.log, "orders", 1).rows == 10  # at least one commit, and only whole commits
    assert newest(log.log, "orders").text == "all 50 rows"


def test_what_other_topics_were_given_since_is_not_in_the_way(log: ScriptedLog) -> None:
    _, orders = shop()
    first = log.write(orders, *orders_at(0.5, 1.5))
    log.log.create_topic("noise")
    with log.log.producer(acks="written") as producer:
        for _ in range(1_100):
            producer.append("noise", pa.table({"key": [b"k"], "value": [b"v"]}))
    assert log.log.head() > first + 1_024
    assert newest(log.log, "orders").rows == 2


# Waits


def test_a_topic_that_is_not_there_is_waited_for(log: ScriptedLog, tmp_path: Path) -> None:
    app, _ = shop()
    (step,) = examine(app, log.log).steps
    assert [wait.name for wait in step.waits] == ["no topic", "never run"]


def test_an_empty_topic_is_waited_for(log: ScriptedLog) -> None:
    app, orders = shop()
    log.log.ensure_topic(orders.topic)
    found = examine(app, log.log)
    (step,) = found.steps
    assert [wait.text for wait in step.waits] == [
        "topic orders is empty",
        "it has not run yet; backlog: 0 rows in 0 commits",
    ]
    assert found.healthy
    assert found.running is None


def test_rows_without_an_event_time_are_told(log: ScriptedLog) -> None:
    app, orders = shop()
    log.write(orders, *({"item": "pen", "price": 1.0, "at": None} for _ in range(3)))
    (step,) = examine(app, log.log).steps
    assert step.waits[0].name == "no event time"
    assert step.waits[0].text.startswith(
        "none of the 3 rows of topic orders has a valid event time"
    )
    assert (step.backlog.rows, step.backlog.commits) == (3, 1)


def test_what_came_from_outside_cannot_steer_a_terminal(log: ScriptedLog) -> None:
    app, orders = shop()
    rows = [row | {"item": "\x1b[31m\x9b2J"} for row in orders_at(0.5, 1.5, 2.5)]
    log.write(orders, *rows)
    log.write(orders, *rows)
    found = examine(app, log.log).finding(DUPLICATES)
    assert found is not None
    assert all(text.isprintable() for text in found.evidence)


def test_events_with_nested_columns_can_be_compared(log: ScriptedLog) -> None:
    app = hr.App("tags")
    tagged = app.topic("tagged", schema="tags array<string>, at timestamp", event_time="at")
    app.publish("copies", tagged)
    for start in (0, 10, 0):
        log.write(
            tagged, *({"tags": ["a", str(n)], "at": second(start + n + 0.5)} for n in range(5))
        )
    found = examine(app, log.log).finding(DUPLICATES)
    assert isinstance(found, Duplicates)
    assert (found.events, found.copies) == (5, 5)


def test_a_topic_that_is_not_as_declared_is_no_reason_to_fail(log: ScriptedLog) -> None:
    app, _ = shop()
    log.log.create_topic("orders")
    with log.log.producer() as producer:
        producer.send("orders", "hello", key="ada")
    checkup = examine(app, log.log)
    assert checkup.healthy
    assert checkup.steps[0].waits[0].name == "no event time"
