"""Crashes between any two steps of a batch, against what each guarantee must make of them."""

from __future__ import annotations

import random

import pytest

from headrace.plan.crash_points import POINTS
from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.exactly_once import EVENTS, SIMULATION, history, payments
from headrace.studio.learn.workers import GUARANTEES, STEPS

SIZE = 3


@pytest.mark.parametrize("sink", ["append", "upsert"])
@pytest.mark.parametrize("crash", range(EVENTS // SIZE * STEPS))
def test_each_crash_costs_what_its_place_in_the_batch_says(crash: int, sink: str) -> None:
    frame = simulate("exactly-once", step=999, sink=sink, size=SIZE, do=f"{crash}:crash")
    done = crash % STEPS
    position_only = done in (2, 3)
    results_only = done == 3
    assert frame.number("at most once: lost") == (SIZE if position_only else 0)
    assert frame.number("at most once: twice") == 0
    assert frame.number("at least once: lost") == 0
    assert frame.number("at least once: twice") == (
        SIZE if results_only and sink == "append" else 0
    )
    assert frame.number("exactly once: lost") == 0
    assert frame.number("exactly once: twice") == 0
    assert frame.step == EVENTS // SIZE * STEPS + 1 + 1 + done


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_crashes_keeps_each_guarantee(seed: int) -> None:
    rng = random.Random(seed)
    crashes = ",".join(f"{step}:crash" for step in range(60) if rng.random() < 0.25)
    size = rng.randint(1, 6)
    setup = SIMULATION.setup({"seed": str(seed), "size": str(size), "do": crashes})
    euros = payments(seed)
    for most, least, exactly in history(setup):
        assert max(most.counts) <= 1
        assert all(least.counts[: least.position])
        stored = [1] * exactly.position + [0] * (EVENTS - exactly.position)
        # Results and position are never apart, whatever is open or was rolled back.
        assert list(exactly.counts) == stored
    most, least, exactly = history(setup)[-1]
    assert [seen.position for seen in (most, least, exactly)] == [EVENTS] * 3
    assert sum(euros) == sum(n * e for n, e in zip(exactly.counts, euros, strict=True))


def test_a_crash_before_the_commit_rolls_back_results_that_were_written() -> None:
    for step in (3, 4):
        setup = SIMULATION.setup({"do": f"{step}:crash"})
        *_, before = history(setup)[step]
        *_, after = history(setup)[step + 1]
        assert before.pending == (0, 1, 2)
        assert (after.pending, sum(after.counts), after.position) == ((), 0, 0)


def test_the_steps_of_the_transaction_are_crash_points_of_headrace_in_their_order() -> None:
    named = [step.point for step in GUARANTEES[-1].steps]
    assert named == sorted(named, key=POINTS.index)
