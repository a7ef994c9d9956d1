"""One stream, three consumers: what the log says against positions that are counted by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.frame import Plot
from headrace.studio.learn.readers import RECORDS, STEPS, history
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.three_consumers import SIMULATION


def setup(**given: object) -> Setup:
    return SIMULATION.setup({name: str(value) for name, value in given.items()})


def lags(chosen: Setup) -> list[dict[str, int]]:
    """The lag of each group after each step, by adding up what each can read."""
    positions = dict.fromkeys(("analytics", "search", "warehouse"), 0)
    stopped: set[str] = set()
    found = []
    for step in range(STEPS + 1):
        written = SIMULATION.frame(chosen, step).number("records written")
        assert isinstance(written, int)
        for action in chosen.actions_at(step - 1):
            match action:
                case "join":
                    positions.setdefault("audit", 0)
                case "pause":
                    stopped.add("warehouse")
                case "resume":
                    stopped.discard("warehouse")
                case "replay":
                    positions["search"] = 0
        for name in positions.keys() - stopped:
            speed = Fraction(str(chosen.number(name)))
            able = math.floor(speed * step) - math.floor(speed * max(0, step - 1))
            positions[name] = min(written, positions[name] + able)
        found.append({f"{name} lag": written - at for name, at in positions.items()})
    return found


@pytest.mark.parametrize("do", ["30:join", "5:pause,25:replay,40:resume,50:replay,60:join"])
def test_lags_are_those_of_a_plain_count(do: str) -> None:
    chosen = setup(warehouse=0.6, do=do)
    for step, wanted in enumerate(lags(chosen)):
        frame = SIMULATION.frame(chosen, step)
        shown = {n.name: n.value for n in frame.numbers if n.name.endswith(" lag")}
        assert shown == wanted, step
        assert frame.number("records kept") == frame.number("records written")


def test_the_plot_shows_the_lag_of_every_step() -> None:
    chosen = setup(warehouse=0.6, do="30:join")
    plot = SIMULATION.frame(chosen, STEPS).panels[1]
    assert isinstance(plot, Plot)
    wanted = lags(chosen)
    for line, name in zip(plot.lines, wanted[-1], strict=True):
        assert [lag for _, lag in line.points] == [each[name] for each in wanted if name in each]


def test_no_group_changes_the_position_of_another() -> None:
    usual = history(setup())
    disturbed = history(setup(warehouse=5, audit=5, do="8:join,12:pause,20:replay"))
    for before, after in zip(usual, disturbed, strict=True):
        assert before.of("analytics") == after.of("analytics")
        assert before.written == after.written


def test_a_replayed_group_reads_every_record_a_second_time() -> None:
    end = history(setup(search=5, do=f"{STEPS - 15}:replay"))[-1].of("search")
    assert end is not None
    assert (end.position, end.lag, end.read) == (RECORDS, 0, 2 * RECORDS)


def test_an_action_at_the_last_step_is_seen_at_once() -> None:
    frame = simulate("three-consumers", step=STEPS, do=f"{STEPS}:join")
    assert "audit has joined" in frame.caption
    assert frame.number("audit lag") == RECORDS - 2
