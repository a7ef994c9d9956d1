"""The bank: rules that hold, transfers that add up, and read models that agree with the events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
import headrace.eventsourcing as es
from headrace.log import Log, open_log
from headrace.store import open_views
from pipelines.bank import (
    Account,
    Deposit,
    Open,
    Returned,
    Transfer,
    Withdraw,
    account,
    app,
    bank,
    decide,
    opening,
    transfers,
)
from tests.spark import shared

JANUARY, MARCH = datetime(2026, 1, 31, 23, 59, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"file:{tmp_path}/log") as log:
        yield log


@pytest.fixture
def store(log: Log) -> Iterator[es.Store]:
    """Two accounts that have paid each other, and one transfer to nobody."""
    with bank.open(log) as store:
        for id in ("ada", "ben"):
            store.decide_across(opening, Open(id, f"{id}@example.org"), at=JANUARY)
            store.handle(account, id, Deposit(200_000), at=JANUARY)
        store.handle(account, "ada", Withdraw(150_000), at=MARCH)
        store.handle(account, "ben", Transfer("ada", 30_000), at=MARCH)
        store.handle(account, "ben", Transfer("nobody", 1_000), at=MARCH)
        transfers.run(store, until_caught_up=True)
        yield store


def balances(store: es.Store, **past: Any) -> list[int]:
    return [store.load(account, id, **past).state.cents for id in ("ada", "ben")]


def test_an_account_is_opened_once_and_an_address_has_one_account(store: es.Store) -> None:
    for command, reason in (
        (Open("eve", "ada@example.org"), "ada@example.org has an account"),
        (Open("ada", "eve@example.org"), "the account is open"),
    ):
        answer = store.decide_across(opening, command)
        assert isinstance(answer, es.Refused) and answer.reason == reason
    assert store.load(account, "eve").state == Account()


def test_an_overdraft_is_refused_and_so_is_an_amount_of_nothing(store: es.Store) -> None:
    for command in (Withdraw(80_001), Transfer("ben", 80_001), Withdraw(0), Deposit(-1)):
        assert isinstance(store.handle(account, "ada", command), es.Refused)
    assert isinstance(store.handle(account, "ada", Withdraw(80_000)), es.Handled)
    assert balances(store) == [0, 170_000]


def test_a_transfer_is_received_or_given_back_and_no_cent_is_lost(store: es.Store) -> None:
    assert balances(store) == [80_000, 170_000]
    *_, last = store.history(account, "ben")
    assert last.event.event == Returned("nobody", 1_000, "the account is not open")


def test_a_balance_can_be_asked_for_at_any_time(store: es.Store) -> None:
    assert balances(store, at=JANUARY) == [200_000, 200_000]
    assert balances(store, version=1) == [0, 0]


def test_a_lower_limit_can_be_tried_on_the_history(store: es.Store) -> None:
    def limited(state: Account, command: Any) -> Any:
        if isinstance(command, Withdraw) and command.cents > 100_000:
            return es.refuse("at most 1,000.00 a day")
        return decide(state, command)

    (found,) = store.what_if(account, limited)
    assert (found.command.aggregate, found.state.cents) == ("account/ada", 200_000)


def test_the_read_models_have_what_the_events_add_up_to_and_a_replay_makes_the_same(
    store: es.Store, log: Log
) -> None:
    assert all(step.law.holds for step in hr.run(app, log, spark=shared()))
    with open_views(log.url) as views:
        found = {row["account"]: row["cents"] for row in views.rows("balances")}
        statements = sorted(
            (row["account"], row["month"], row["paid_in"], row["paid_out"])
            for row in views.rows("statements")
        )
    assert [found["ada"], found["ben"]] == balances(store)
    assert statements == [
        ("ada", "2026-01", 200_000, 0),
        ("ada", "2026-03", 30_000, 150_000),
        ("ben", "2026-01", 200_000, 0),
        ("ben", "2026-03", 1_000, 31_000),
    ]
    notices = [row for batch in log.read("large-withdrawals") for row in batch.data.to_pylist()]
    assert [(row["aggregate"], row["cents"]) for row in notices] == [("account/ada", 150_000)]

    again = hr.run(app, log, over=hr.LogRange(), spark=shared()).view("balances").to_pylist()
    assert {row["account"]: row["cents"] for row in again} == found
