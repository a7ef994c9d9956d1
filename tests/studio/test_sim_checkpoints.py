"""The numbers of the simulation of checkpoints, counted again from the rows of its sink."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.checkpoints import SIMULATION, history, job
from headrace.studio.learn.models.barriers import run
from headrace.studio.learn.models.recovery import trade_off

BARRIERS = pytest.mark.parametrize("barriers", ["aligned", "unaligned"])


def duplicates(rows: Counter[object]) -> int:
    return sum(count - 1 for count in rows.values())


@BARRIERS
@pytest.mark.parametrize("acts", ["", "5:fail", "23:fail", "12:fail,30:fail", "9:fail,10:fail"])
def test_what_is_done_again_is_twice_in_a_sink_that_appends(barriers: str, acts: str) -> None:
    setup = SIMULATION.setup({"barriers": barriers, "do": acts})
    rows = Counter[object](history(setup)[-1].sink)
    frame = simulate("checkpoints", step=999, barriers=barriers, do=acts)
    assert frame.number("taken in") == len(rows)
    assert frame.number("rows in the sink") == rows.total()
    assert frame.number("twice in the sink") == duplicates(rows)
    assert frame.number("done again") == duplicates(rows)
    upserted = simulate("checkpoints", step=999, barriers=barriers, do=acts, sink="idempotent")
    assert upserted.number("rows in the sink") == len(rows)
    assert upserted.number("twice in the sink") == 0
    assert upserted.number("done again") == duplicates(rows)


@BARRIERS
def test_the_recovery_lasts_until_the_state_is_as_large_as_it_was(barriers: str) -> None:
    setup = SIMULATION.setup({"barriers": barriers, "do": "23:fail"})
    sizes = [len(moment.states["join"]) for moment in history(setup)]
    ticks = next(t for t in range(24, len(sizes)) if sizes[t] >= sizes[23]) - 23
    frame = simulate("checkpoints", step=999, barriers=barriers, do="23:fail")
    assert frame.number("recovery") == ticks


@BARRIERS
def test_the_cost_of_an_interval_is_the_mean_over_a_failure_at_each_tick(barriers: str) -> None:
    given = job(SIMULATION.setup({"barriers": barriers}))
    for interval, stalled, stake in trade_off(given):
        if interval not in (2, 8, 20):
            continue
        this = replace(given, interval=interval)
        calm = run(this)
        # The run ends with its last tick, so a failure there is counted by hand.
        last = len(calm[-1].sink) - len(calm[-1].checkpoints[-1].states["join"])
        found = [
            duplicates(Counter[object](run(this, frozenset([tick]))[-1].sink))
            for tick in range(len(calm) - 1)
        ]
        assert stake == round((sum(found) + last) / len(calm), 2)
        assert stalled == calm[-1].stalled


def test_barriers_that_overtake_never_wait() -> None:
    for moment in history(SIMULATION.setup({"barriers": "unaligned"})):
        assert not moment.blocked
    assert any(moment.blocked for moment in history(SIMULATION.setup({})))
