"""The event-sourced account against a ledger that is kept by hand."""

from __future__ import annotations

import pytest

from headrace.studio.learn.account import BACK, SENDING, STEPS, Moment, history
from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.event_sourced_account import SIMULATION
from headrace.studio.learn.simulation import Setup

NAME = "event-sourcing"
ACTS = "4:overdraw,6:again,8:race,10:backdate,12:deposit,12:again"


def setup(**given: object) -> Setup:
    return SIMULATION.setup({name: str(value) for name, value in given.items()})


def moments(**given: object) -> tuple[Moment, ...]:
    return history(setup(**given))


def test_the_same_setup_gives_the_same_history() -> None:
    chosen = setup(do=ACTS)
    assert history.__wrapped__(chosen) == history.__wrapped__(chosen)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_balance_is_that_of_the_commands_that_were_not_refused(seed: int) -> None:
    for moment in moments(seed=seed, withdrawals=70, do=ACTS):
        balance = 0
        for asked in moment.asked:
            signed = asked.amount if asked.text.startswith("deposits") else -asked.amount
            assert (asked.reason is not None) == (balance + signed < 0), asked
            balance += 0 if asked.reason else signed
        assert moment.state == balance
        assert moment.version == len(moment.asked) - moment.refused
    assert moment.refused > 2


@pytest.mark.parametrize("snapshot", [0, 3])
def test_loading_folds_what_came_since_the_snapshot(snapshot: int) -> None:
    usual = moments(do=ACTS)
    for moment, other in zip(moments(snapshot=snapshot, do=ACTS), usual, strict=True):
        assert moment.scratch == moment.version
        assert moment.tail == (moment.version % snapshot if snapshot else moment.version)
        assert (moment.facts, moment.state) == (other.facts, other.state)


def test_a_backdated_deposit_changes_what_was_and_not_what_was_known() -> None:
    before, after = moments(second=10, do="12:backdate")[12:14]
    assert before.by_time == before.by_commit
    assert before.by_time and after.by_time
    assert after.by_time[0] == before.by_time[0] + 40
    assert after.by_commit == before.by_commit
    assert after.facts[-1].at == 13 - BACK


def test_a_command_that_comes_again_has_no_second_effect() -> None:
    first, again = moments(do=f"{SENDING + 1}:deposit,{SENDING + 2}:again")[SENDING + 2 :][:2]
    assert (again.facts, again.asked, again.repeated) == (first.facts, first.asked, 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_of_two_tellers_with_the_same_state_one_decides_again_and_is_refused(seed: int) -> None:
    before, after = moments(seed=seed, withdrawals=0, do=f"{SENDING + 1}:race")[SENDING + 1 :][:2]
    assert after.again == 1
    assert [asked.reason is None for asked in after.asked[-2:]] == [True, False]
    assert after.state == before.state - (before.state * 2 // 3 + 1) > 0


def test_what_if_lists_the_refusals_that_a_credit_would_have_accepted() -> None:
    for credit in (0, 60):
        (last,) = moments(withdrawals=70, credit=credit)[STEPS:]
        short = {f"the balance is {n}": n for n in range(1_000)}
        wanted = [
            asked.text for asked in last.asked
            if asked.reason and asked.amount <= short[asked.reason] + credit
        ]  # fmt: skip
        assert list(last.would) == wanted
    assert wanted


def test_the_caption_says_why_a_command_was_refused() -> None:
    frame = simulate(NAME, step=12, do="11:overdraw")
    assert "refused, the balance is" in frame.caption
    assert frame.number("replays that differ") == 0
