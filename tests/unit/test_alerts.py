"""Alerts: refusals and their positions, explanations, and the meaning of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.application.run import StepProgress
from headrace.clock import micros, to_micros
from headrace.errors import InvalidPipeline
from headrace.language.differences import differences
from headrace.operators.alerts.meaning import Flagged, Seen, Verdict, flagged
from headrace.oracle.events import Event
from headrace.pipeline.row_steps import needed_columns
from headrace.pipeline.stream import Source
from headrace.plan.law import Law
from headrace.plan.steps import definition_of, fingerprint, steps_of
from tests.refusals import text_of

SECOND = timedelta(seconds=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def source(app: hr.App | None = None, more: str = "") -> Source:
    schema = f"payment string, card string, amount int, at timestamp{more}"
    return (app or hr.App("cards")).topic("payments", schema=schema, event_time="at")


def owners(app: hr.App | None = None, name: str = "owners") -> Source:
    declared = app or hr.App("cards")
    schema = "card string, usual int, changed timestamp"
    settings = {"cleanup": "compact"}
    return declared.topic(name, schema=schema, key="card", event_time="changed", settings=settings)


def known(**more: Any) -> hr.Stream:
    given: dict[str, Any] = {"on": "card", "mode": "latest", **more}
    return hr.enrich(source(), hr.table(owners(), key="card"), **given)


def flags(stream: hr.Stream | None = None, **more: Any) -> hr.Alerts:
    given: dict[str, Any] = {
        "by": "card",
        "event": "payment",
        "within": 60 * SECOND,
        "delay": 10 * SECOND,
        "rules": {"many": "size(recent) > 2"},
        **more,
    }
    return hr.alerts(stream or source(), **given)


def other() -> Source:
    return hr.App("cards").topic(
        "more", schema="payment string, card string, amount int, at timestamp", event_time="at"
    )


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no key": (lambda: flags(by=[]), "need a key"),
    "key": (lambda: flags(by="cards"), "Did you mean 'card'"),
    "twice": (lambda: flags(by=["card", "Card"]), "need a key"),
    "no id": (lambda: flags(event="pay"), "There is no column 'pay'"),
    "id and key": (lambda: flags(event="card"), "the id of each event"),
    "no time": (lambda: flags(within=0 * SECOND), "must be positive"),
    "delay": (lambda: flags(delay=-SECOND), "not negative"),
    "limit": (lambda: flags(limit=0), "at least 1"),
    "no rules": (lambda: flags(rules={}), "need a rule"),
    "rule": (lambda: flags(rules={"a": "amout > 3"}), "Did you mean 'amount'"),
    "evidence": (lambda: flags(rules={"a": hr.rule("true", evidence="rcent")}), "'recent'"),
    "value": (lambda: flags(rules={"a": hr.rule("true", value="amounts")}), "'amount'"),
    "not SQL": (lambda: flags(rules={"a": "size(recent >"}), "is not Spark SQL"),
    "two topics": (lambda: flags(hr.merge(source(), other())), "a single topic"),
    "name": (lambda: flags(source(more=", recent int")), "'recent' is reserved"),
    "of alerts": (lambda: flags(source(more=", rule string"), event="rule"), "'rule'"),
    "amended": (lambda: flags(known(mode="as_of", wait=SECOND, amend=SECOND)), "come again"),
    "late first": (
        lambda: hr.App("cards").publish("late", flags().late),
        "the stream whose late",
    ),
    "itself": (lambda: steps_of(published(topic="owners")), "would read its own output"),
}


def published(topic: str = "alerts", **more: Any) -> hr.App:
    app = hr.App("cards")
    table = hr.table(owners(app), key="card")
    step = flags(hr.enrich(source(app), table, on="card", mode="latest"), **more)
    app.publish(topic, step)
    app.publish("late", step.late)
    return app


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_the_users_line(case: str) -> None:
    declare, words = REFUSED[case]
    with pytest.raises(InvalidPipeline) as refused:
        declare()
    assert words in text_of(refused.value)
    assert Path(__file__).name in str(refused.value)


def test_an_alert_names_the_rule_the_event_and_the_evidence() -> None:
    step = flags(by="CARD", event="Payment")
    assert step.columns == (
        *("alert", "rule", "card", "payment", "at", "value"),
        *("evidence", "since", "cut", "appended"),
    )
    assert step.late.columns == (*source().columns, "watermark", "late_by")


def test_a_table_is_looked_up_and_not_counted() -> None:
    (step,) = steps_of(published())
    assert step.topics == ("payments",)
    assert step.late == ("late",)
    assert needed_columns(step.stream) == {"payments": {"payment", "card", "amount", "at"}}


def test_what_is_another_between_two_declarations_is_told() -> None:
    (before,) = steps_of(published())
    rules = {"many": "size(recent) > 3", "big": "amount > 3"}
    (now,) = steps_of(published(rules=rules, within=90 * SECOND, limit=5))
    assert fingerprint(before) != fingerprint(now)
    assert differences(definition_of(before), definition_of(now)) == [
        "the lookback was 1m from each 'payment', at most 1,000 events, and is 90s from each "
        "'payment', at most 5 events,",
        "rule 'big' is new",
        "rule 'many' is computed differently",
    ]
    app = hr.App("cards")
    app.publish("alerts", flags(source(app)))
    (without,) = steps_of(app)
    assert differences(definition_of(before), definition_of(without)) == [
        "the lookup table of the rules is gone"
    ]


def test_an_explanation_has_the_rules_and_what_is_held() -> None:
    explained = published().explain()["alerts"]
    assert explained["flags"] == "many: size(recent) > 2"
    assert explained["looks up"] == "the newest of owners"
    assert "60s" not in explained["holds"]
    assert "130s" in explained["holds"]
    assert "10s or more behind" in explained["late"]
    assert explained["publishes"].splitlines()[1] == "late rows to topic late"


def test_the_watermark_that_is_shown_is_behind_by_the_delay() -> None:
    (step,) = steps_of(published())
    progress = StepProgress(step.name, Law(), to_micros(NOON), 0, delay=step.delay)
    assert progress.watermark == to_micros(NOON) - micros(10 * SECOND)


# The meaning of rules


def many(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
    return Verdict(recent, float(len(recent))) if len(recent) > 2 else None


def meant(*commits: list[tuple[str, int]], **more: Any) -> Flagged:
    """The oracle's result for payments of one card, each an id and an event time in seconds."""
    topic, events = source().topic, []
    frontier: int | None = None
    for number, commit in enumerate(commits, 1):
        before = frontier
        for offset, (name, at) in enumerate(commit):
            moment = NOON + at * SECOND
            row = {"payment": name, "card": "x", "amount": 1, "at": moment}
            events.append(
                Event(topic, number, 0, 100 * number + offset, to_micros(moment), before, row)
            )
            frontier = max(frontier or 0, to_micros(moment))
    return flagged(flags(**more), events, {"many": many})


def ids(found: Flagged) -> list[str]:
    return [alert["alert"] for alert in found.alerts]


def test_both_ends_of_the_recent_past_are_in_it() -> None:
    assert ids(meant([("a", 0)], [("b", 30)], [("c", 60)])) == ["c:many"]
    assert ids(meant([("a", 0)], [("b", 30)], [("c", 61)])) == []


def test_an_event_is_the_last_of_its_recent_past() -> None:
    found = meant([("a", 5), ("b", 5), ("c", 5)])
    assert ids(found) == ["c:many"]
    assert found.alerts[0]["evidence"] == ["a", "b", "c"]


def test_an_event_that_comes_late_makes_those_after_it_be_looked_at_again() -> None:
    found = meant([("a", 0)], [("c", 9)], [("b", 8)])
    assert ids(found) == ["c:many"]
    assert found.alerts[0]["evidence"] == ["a", "b", "c"]
    assert found.again == 1


def test_an_alert_is_told_once_and_says_what_was_known_then() -> None:
    found = meant([("a", 0)], [("b", 5)], [("c", 9)], [("between", 7)])
    assert ids(found) == ["c:many", "between:many"]
    assert found.alerts[0]["evidence"] == ["a", "b", "c"]


def test_an_event_that_is_too_late_changes_nothing() -> None:
    found = meant([("a", 0)], [("c", 20)], [("b", 10)])
    assert ids(found) == []
    assert [row["payment"] for _, row, _ in found.late] == ["b"]


def test_of_a_hot_key_the_newest_are_seen_and_the_alert_says_so() -> None:
    found = meant([("a", 0), ("b", 1), ("c", 2), ("d", 3)], limit=3)
    assert [(alert["evidence"], alert["cut"]) for alert in found.alerts] == [
        (["a", "b", "c"], False),
        (["b", "c", "d"], True),
    ]


def test_an_id_that_is_used_again_long_after_is_told_again() -> None:
    found = meant(
        [("a", 0), ("a", 1), ("a", 2)], [("a", 3)], [("x", 100)], [("a", 101), ("a", 102)]
    )
    assert ids(found) == ["a:many", "a:many"]
    assert [alert["at"] for alert in found.alerts] == [NOON + 2 * SECOND, NOON + 102 * SECOND]
