"""The numbers of leader loss, counted again with lists and a list of what was acknowledged."""

from __future__ import annotations

import pytest

from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.leader_loss import SIMULATION, TICKS, fetches, history


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("lag", [1, 3])
def test_a_dead_leader_takes_with_it_what_its_successor_had_not_copied(seed: int, lag: int) -> None:
    copies = fetches(seed, lag)
    for tick in range(TICKS):
        copied = {2: 0, 3: 0}
        in_time = {2: True, 3: True}
        idle = {2: 0, 3: 0}
        for number in range(tick):
            for broker in (2, 3):
                idle[broker] += 1
                if broker in copies[number]:
                    copied[broker], idle[broker], in_time[broker] = number + 1, 0, True
                in_time[broker] &= idle[broker] <= 4
        if not any(in_time.values()):
            continue
        successor = 2 if in_time[2] else 3
        frame = simulate("leader-loss", step=tick + 1, seed=seed, lag=lag, do=f"{tick}:kill")
        assert frame.number("sent") == frame.number("acks=1: acknowledged") == tick
        assert frame.number("acks=1: lost") == tick - copied[successor]
        assert frame.number("acks=all: lost") == 0


@pytest.mark.parametrize("least", [1, 2, 3])
@pytest.mark.parametrize("seed", range(1, 6))
def test_acks_all_never_loses_while_elections_are_clean(seed: int, least: int) -> None:
    for acts in ("10:kill", "7:kill,9:kill,12:restart", "4:kill,8:restart,15:kill,20:kill"):
        for step in range(TICKS + 1):
            frame = simulate("leader-loss", step=step, seed=seed, lag=5, least=least, do=acts)
            assert frame.number("acks=all: lost") == 0
            told = [frame.number(f"acks=all: {what}") for what in ("acknowledged", "errors")]
            waiting = frame.number("acks=all: waiting")
            assert sum(map(int, [*told, waiting])) == frame.number("sent")


def test_each_prompt_shows_what_it_says() -> None:
    kill, again, refused, unclean = (
        SIMULATION.frame(
            SIMULATION.setup(
                {
                    **{name: str(value) for name, value in prompt.values.items()},
                    "do": ",".join(f"{at}:{name}" for at, name in prompt.actions),
                }
            ),
            prompt.step,
        )
        for prompt in SIMULATION.prompts
    )
    assert (kill.number("acks=1: lost"), kill.number("acks=all: lost")) == (3, 0)
    assert again.number("acks=1: lost") == 3
    assert refused.number("acks=all: errors") == 21
    assert unclean.number("acks=all: lost") == 6


def test_a_restarted_leader_has_the_log_of_the_new_one() -> None:
    setup = SIMULATION.setup({"do": "10:kill,12:restart", "lag": "1"})
    for each in history(setup)[-1]:
        assert each.log(1) == each.log(2) == each.log(3)
        assert each.in_sync == {1, 2, 3}
