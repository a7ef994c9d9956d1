"""The fraud demo: plausible traffic, a recount by the rules, and a check that can fail."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console, RenderableType

from headrace.application.run import StepProgress
from headrace.cli.demonstration.fraud.account import (
    Account,
    Passed,
    findings,
    fraud_score,
    percentiles,
    picture,
    rule_scores,
)
from headrace.cli.demonstration.fraud.play import Results
from headrace.cli.demonstration.fraud.recount import (
    FAST,
    MANY,
    MUCH,
    Alert,
    Recount,
    alerts_in,
    recount,
)
from headrace.cli.demonstration.fraud.screen import draw, plain_line, summary
from headrace.cli.demonstration.fraud.traffic import SCENARIOS, Incident, distance, traffic
from headrace.cli.demonstration.play import Scene
from headrace.cli.demonstration.stage import pipeline_file
from headrace.cli.loading import load_app
from headrace.clock import SECOND, VirtualClock, micros, to_datetime
from headrace.log import open_log
from headrace.operators.alerts.declare import Alerts
from headrace.plan.law import Law

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
START = 1_767_268_800 * SECOND
"""A full hour."""


def test_traffic_is_the_same_for_a_seed_and_as_much_as_was_asked_for() -> None:
    one, same = traffic(4_000, START, 3 * HOUR), traffic(4_000, START, 3 * HOUR)
    assert one.transactions.equals(same.transactions)
    assert one.truth == same.truth
    assert one.transactions.num_rows == 4_000
    assert not traffic(4_000, START, 3 * HOUR, seed=1).transactions.equals(one.transactions)
    chunks = list(one.tables(20, 1_000))
    assert pa.concat_tables(chunks).equals(one.transactions.slice(20))


def test_every_card_has_a_profile_and_every_scenario_is_there() -> None:
    made = traffic(4_000, START, 3 * HOUR)
    cards = set(made.profiles.column("card").to_pylist())
    assert set(made.transactions.column("card").to_pylist()) <= cards
    assert {incident.scenario for incident in made.truth.values()} == set(SCENARIOS)
    assert len(made.truth) < 0.2 * made.transactions.num_rows
    ids = made.transactions.column("transaction").to_pylist()
    assert len(set(ids)) == 4_000
    assert made.truth.keys() <= set(ids)


def test_holders_travel_at_a_speed_that_is_possible() -> None:
    made = traffic(4_000, START, 3 * HOUR)
    stolen = {incident.card for incident in made.truth.values()}
    uses: dict[str, list[Any]] = defaultdict(list)
    for row in made.transactions.to_pylist():
        if row["card"] not in stolen:
            uses[row["card"]].append(row)
    for mine in uses.values():
        mine.sort(key=lambda row: row["at"])
        for before, now in itertools.pairwise(mine):
            hours = (now["at"] - before["at"]).total_seconds() / 3600
            assert distance(before["lat"], before["lon"], now["lat"], now["lon"]) < 500 * hours


def test_a_few_events_are_traffic_too() -> None:
    assert traffic(1, START, 3 * HOUR).transactions.num_rows == 1


# The recount


def use(name: str, at: float, amount: str = "1", card: str = "x", lat: float = 50.0) -> Any:
    moment = to_datetime(START + int(at * SECOND))
    place = {"merchant": "m", "lat": lat, "lon": 8.0}
    return {"transaction": name, "card": card, "amount": Decimal(amount), "at": moment, **place}


def counted(folder: Path, *commits: list[Any]) -> Recount:
    app = load_app(f"{pipeline_file('fraud.py')}:app")
    step = app.outputs["fraud.alerts"].stream
    assert isinstance(step, Alerts)
    clock = VirtualClock(to_datetime(START + HOUR))
    with open_log(f"file:{folder}", clock=clock) as log, log.producer() as producer:
        topic = log.ensure_topic(app.topics["transactions"])
        for rows in commits:
            producer.append("transactions", pa.Table.from_pylist(rows, topic.schema))
    return recount(folder, "transactions", micros(step.within), micros(step.delay))


def test_more_than_five_in_a_minute_are_too_many(tmp_path: Path) -> None:
    rows = [use(f"{n}", 12 * n) for n in range(7)]
    assert counted(tmp_path, rows).flagged[MANY] == {"5", "6"}
    apart = [use(f"{n}", 12.1 * n) for n in range(7)]
    assert counted(tmp_path / "apart", apart).flagged[MANY] == frozenset()


def test_more_than_5000_in_ten_minutes_is_too_much(tmp_path: Path) -> None:
    rows = [use("a", 0, "2500"), use("b", 300, "2500"), use("c", 600, "0.01")]
    assert counted(tmp_path, rows).flagged[MUCH] == {"c"}
    apart = [use("a", 0, "2500"), use("b", 300, "2500"), use("c", 600.001, "0.01")]
    assert counted(tmp_path / "apart", apart).flagged[MUCH] == frozenset()


def test_more_than_500_km_per_hour_is_too_fast(tmp_path: Path) -> None:
    # A degree to the north is 111.2 km, which takes 800.6 s at 500 km/h.
    rows = [use("a", 0), use("b", 300, lat=50.37), use("c", 600, lat=50.75), use("d", 600)]
    assert counted(tmp_path, rows).flagged[FAST] == {"c", "d"}
    same = [use("a", 0), use("b", 0), use("c", 0, lat=50.001)]
    assert counted(tmp_path / "same", same).flagged[FAST] == {"c"}


def test_what_came_too_late_is_not_looked_at(tmp_path: Path) -> None:
    again = counted(tmp_path, [use("a", 100)], [use("b", 70), use("c", 70.001)])
    assert again.late == {"b"}
    assert set(again.uses) == {"a", "c"}


# The account


def alert(transaction: str, rule: str, took: float = 0.5) -> Alert:
    appended = START + HOUR
    alerted = appended + int(took * SECOND)
    return Alert(f"{transaction}:{rule}", rule, transaction, appended, alerted)


@pytest.fixture
def again(tmp_path: Path) -> Recount:
    rows = [use(f"{n}", 12 * n, "1000") for n in range(7)]
    return counted(tmp_path, rows, [use("far", 3_000, "70")], [use("later", 4_000, "70")])


ALL = [alert("5", MANY), alert("6", MANY), alert("5", MUCH), alert("6", MUCH)]
LAW = Law(rows=9, pairs=9, counted=9)


def test_an_account_of_what_is_right_holds(again: Recount) -> None:
    assert all(finding.holds for finding in findings(LAW, again, ALL, [], 9))
    assert [score.recall for score in rule_scores(again, ALL)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("alerts", "wrong"),
    [
        (ALL[1:], "flagged as too many"),
        ([*ALL, alert("4", MUCH)], "flagged as too much"),
        ([*ALL, ALL[0]], "alerts without duplicates"),
    ],
)
def test_an_alert_that_lacks_or_is_too_many_is_found(
    again: Recount, alerts: list[Alert], wrong: str
) -> None:
    found = [finding.law for finding in findings(LAW, again, alerts, [], 9) if not finding.holds]
    assert found == [wrong]


def test_what_was_told_of_a_speed_before_one_came_between_does_no_harm(again: Recount) -> None:
    more = [*ALL, alert("far", FAST)]
    assert all(finding.holds for finding in findings(LAW, again, more, [], 9))
    (score,) = [score for score in rule_scores(again, more) if score.rule == FAST]
    assert (score.precision, score.recall) == (0.0, 1.0)


def test_rows_that_were_not_read_or_not_told_to_be_late_are_found(again: Recount) -> None:
    wrong = [
        f.law
        for f in findings(replace(LAW, rows=8, counted=8), again, ALL, ["x"], 9)
        if not f.holds
    ]
    assert wrong == [
        "transactions read",
        "transactions accounted for",
        "late transactions in fraud.late",
    ]


def test_an_hourly_batch_lets_through_what_comes_before_the_hour(again: Recount) -> None:
    stolen = Incident(0, SCENARIOS[1], "x")
    truth = dict.fromkeys(["3", "4", "5", "6", "far", "later"], stolen)
    seen = picture(again, ALL, truth)
    assert (seen.incidents, seen.caught) == (1, 1)
    assert seen.all == Passed(6, Decimal(4_140))
    assert seen.hourly == Passed(5, Decimal(4_070)), "all but the one after the hour"
    assert seen.alerted == Passed(3, Decimal(3_000)), "up to the one that shows it"
    slow = picture(again, [alert("5", MUCH, took=12.5)], truth)
    assert slow.alerted == Passed(4, Decimal(4_000)), "one more in the time an alert takes"
    unseen = picture(again, [], truth)
    assert unseen.hourly == unseen.alerted == unseen.all


def test_alerts_are_scored_by_the_transactions_that_are_fraud(again: Recount) -> None:
    stolen = Incident(0, SCENARIOS[0], "x")
    score = fraud_score(again, ALL, dict.fromkeys(["4", "5", "unheard of"], stolen))
    assert (score.alerts, score.meant, score.right) == (2, 2, 1)
    assert (score.precision, score.recall) == (0.5, 0.5)


def test_latency_is_told_in_percentiles() -> None:
    took = [alert(f"{n}", MANY, n / 100) for n in range(101)]
    assert percentiles(took) == pytest.approx({"p50": 0.5, "p95": 0.95, "p99": 0.99})
    assert percentiles([]) == {}


def test_there_are_no_alerts_in_a_topic_without_any(tmp_path: Path) -> None:
    with open_log(f"file:{tmp_path}") as log:
        log.create_topic("fraud.alerts", schema="alert string, at timestamp", event_time="at")
    assert alerts_in(tmp_path, "fraud.alerts") == []


def test_scenarios_take_turns() -> None:
    made = traffic(8_000, START, 3 * HOUR)
    seen = Counter({i.number: i.scenario for i in made.truth.values()}.values())
    assert max(seen.values()) - min(seen.values()) <= 2


# The screen


def drawn(thing: RenderableType) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def test_alerts_are_drawn_with_the_newest_first_and_told_in_a_line() -> None:
    waiting: Scene[Results] = Scene("file:./x", 3.0, 20, START, False, None)
    assert "starting Spark" in drawn(draw(waiting))
    assert plain_line(waiting) == "00:03  20 written; starting Spark ..."
    rows = [
        {"rule": rule, "card": f"card-{n}", "transaction": f"t{n}", "at": to_datetime(START),
         "value": value, "evidence": ["t0", f"t{n}"]}
        for n, (rule, value) in enumerate([(MUCH, 5_001.5), (FAST, None)])
    ]  # fmt: skip
    results = Results(StepProgress("fraud.alerts", LAW, START, 0), START, 900.0, 2, rows)
    scene = Scene("file:./x", 70.0, 9, START, True, results)
    lines = drawn(draw(scene)).splitlines()
    (fast,) = [number for number, line in enumerate(lines) if line.startswith(FAST)]
    assert lines[fast].split()[-3:] == ["12:00:00", "∞", "2"]
    assert lines[fast + 1].split()[-2:] == ["5,001.50", "2"]
    assert plain_line(scene).endswith("2 alerts; latest: too fast, card-1 at 12:00:00")


def test_the_end_says_how_rules_did_and_what_got_through(again: Recount) -> None:
    truth = dict.fromkeys(["3", "4", "5", "6", "far", "later"], Incident(0, SCENARIOS[1], "x"))
    account = Account(
        "file:./x", 9, 12.0, findings(LAW, again, ALL, [], 9), rule_scores(again, ALL),
        fraud_score(again, ALL, truth), picture(again, ALL, truth), percentiles(ALL),
    )  # fmt: skip
    said = drawn(summary(account))
    assert "1 of 1 stolen cards were found" in said
    assert [line.split()[-2:] for line in said.splitlines() if line.startswith("with")] == [
        ["6", "$4,140"],
        ["5", "$4,070"],
        ["3", "$3,000"],
    ]
    assert "p99 0.50 s" in said
    assert "Every transaction is accounted for. (12 s)" in said
    report = account.to_json()
    assert report["let_through"]["hourly"] == {"transactions": 5, "money": 4_070.0}
    assert report["rules"][0]["recall"] == 1.0
    assert "please report it" in drawn(
        summary(replace(account, findings=findings(LAW, again, [], [], 9)))
    )
