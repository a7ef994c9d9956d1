"""Steps that read the results of other steps: each row once, to the end of the chain in one run."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.application.doctor import examine
from headrace.application.run import Run
from headrace.errors import ViewError
from headrace.servers.kafka.state import ClusterState
from headrace.testing import START, Results, ScriptedLog, scripted_log
from tests.kafka_runs import runs
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


def test_time_is_passed_on_to_the_next_window_without_another_row(log: ScriptedLog) -> None:
    app = hr.App("timely")
    per_minute = hr.aggregate(
        clicks, by="page", window=hr.tumbling(MINUTE), lateness=PATIENT, hits=hr.count()
    )
    per_hour = hr.aggregate(
        per_minute, by="page", window=hr.tumbling(HOUR), lateness=IN_ORDER, emit="final",
        hits=hr.sum("hits"),
    )  # fmt: skip
    app.view("per_hour", per_hour)
    row = {"id": 1, "user": "a", "page": "home"}
    log.write(clicks, {**row, "ts": START + MINUTE / 2}, {**row, "ts": START + HOUR - MINUTE})
    log.write(clicks, {**row, "ts": START + HOUR + PATIENT.delay})

    assert shown(log.run(app, spark=shared()), "per_hour", "page", "hits") == {("home",): 2}


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


def test_one_run_reaches_the_end_of_a_chain_of_three_steps_and_drain_closes_it(
    log: ScriptedLog,
) -> None:
    app = hr.App("three")
    once = hr.deduplicate(clicks, by="id", ttl=HOUR, delay=PATIENT.delay)
    per_minute = hr.aggregate(
        once, by="user", window=hr.tumbling(MINUTE), lateness=PATIENT, hits=hr.count()
    )
    per_hour = hr.aggregate(
        hr.top(per_minute, 1, by="hits"), by="user", window=hr.tumbling(HOUR),
        lateness=IN_ORDER, emit="final", won=hr.count(), hits=hr.sum("hits"),
    )  # fmt: skip
    app.view("per_hour", per_hour)
    app.publish("published", per_hour)
    rows = some_clicks(120)
    write_in_commits(log, clicks, [again for row in rows for again in (row, row)])

    results = log.run(app, spark=shared())
    assert all(step.lag == 0 and step.law.holds for step in results.steps)
    assert [step.step for step in results.steps] == [
        "per_hour.part.part", "per_hour.part", "per_hour"
    ]  # fmt: skip
    assert results.law("per_hour.part.part").duplicates == len(rows)
    before = results.view("per_hour")

    drained = Results(log.log, app.name, tuple(hr.drain(app, log.log, spark=shared())))

    hits: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in rows:
        hits[floor(row["ts"], MINUTE)][row["user"]] += 1
    won: Counter[tuple[str, str]] = Counter()
    for start, counts in hits.items():
        user, most = min(counts.items(), key=lambda item: (-item[1], item[0]))
        won[user, written(floor(start, HOUR))] += most
    assert shown(drained, "per_hour", "user", "window_start", "hits") == dict(won)
    assert before and all(row in drained.view("per_hour") for row in before)
    published = [record.value for record in log.records("published") if record.value]
    assert sum(row["hits"] for row in published) == sum(won.values())
    assert not any(step.law.late for step in drained.steps)


def test_a_published_topic_that_is_read_back_is_followed_too(log: ScriptedLog) -> None:
    app = hr.App("back")
    copies = app.topic("copies", schema="page string, ts timestamp", event_time="ts")
    app.view("last", copies, key="page")
    app.publish("copies", hr.select(clicks, "page", "ts"))
    write_in_commits(log, clicks, some_clicks(30))
    results = log.run(app, spark=shared())
    assert {step.step: step.lag for step in results.steps} == {"last": 0, "copies": 0}
    assert len(results.view("last")) == 2


def test_a_fresh_run_and_a_rebuild_give_the_same_rows_again(log: ScriptedLog) -> None:
    app = hr.App("again")
    app.view("last", hr.filter(clicks, "page = 'home'"), key="user")
    rows = some_clicks(60)
    write_in_commits(log, clicks, rows)
    first = log.run(app, spark=shared())
    home = sorted((r for r in rows if r["page"] == "home"), key=lambda r: (r["ts"], r["id"]))
    assert shown(first, "last", "user", "id") == {(r["user"],): r["id"] for r in home}

    with Run(app, log.log, until_caught_up=True, fresh=True, spark=shared()) as running:
        running.wait()
    assert len(log.records("again.last.part")) == len(home), "its topic is made again"
    assert first.view("last") == Results(log.log, "again", ()).view("last")

    rebuilt = hr.rebuild(app, "last", log.log, spark=shared())
    assert rebuilt.diff.empty
    assert (rebuilt.diff.same, rebuilt.lost) == (3, 0)
    assert {check.status for check in hr.preflight(app, log.log).steps} == {"unchanged"}
    checkup = examine(app, log.log)
    assert [step.step for step in checkup.steps] == ["last.part", "last"]
    assert checkup.healthy
    changed = hr.App("again")
    changed.view("last", hr.filter(clicks, "page = 'cart'"), key="user")
    refused = hr.preflight(changed, log.log)
    assert [check.status for check in refused.steps] == ["changed", "changed"]
    with pytest.raises(ViewError, match=r"inner step 'last\.part', which has changed"):
        hr.rebuild(changed, "last", log.log, spark=shared())


@pytest.mark.slow
@pytest.mark.service
def test_a_chain_on_kafka_is_computed_to_its_end(
    broker: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))
    with runs(f"127.0.0.1:{broker.nodes[0].port}", shared()) as kafka:
        app = hr.App(kafka.name("chained"))
        visits = app.topic(
            kafka.name("visits"), schema="page string, ts timestamp", event_time="ts"
        )
        per_minute = hr.aggregate(
            visits, by="page", window=hr.tumbling(MINUTE), lateness=PATIENT, hits=hr.count()
        )
        per_hour = hr.aggregate(
            per_minute, by="page", window=hr.tumbling(HOUR), lateness=PATIENT,
            minutes=hr.count(), hits=hr.sum("hits"),
        )  # fmt: skip
        app.view("per_hour", per_hour)
        times = [START + minute * MINUTE for minute in (0, 0, 1, 2, 59, 60, 80)]
        kafka.send(visits, *({"page": "home", "ts": time.isoformat()} for time in times))
        kafka.run(app)
        times.append(START + 3 * HOUR)
        kafka.send(visits, {"page": "home", "ts": times[-1].isoformat()})
        results = kafka.run(app)
        found = {
            row["window_start"]: (row["minutes"], row["hits"]) for row in results.view("per_hour")
        }
        assert found == {written(START): (4, 5), written(START + HOUR): (2, 2)}
        assert all(step.law.holds for step in results.steps)

        app.view("last", hr.filter(visits, "page = 'home'"), key="page")
        results = kafka.run(app)
        assert shown(results, "last", "page", "ts") == {("home",): written(times[-1])}
