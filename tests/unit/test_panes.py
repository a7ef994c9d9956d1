"""Options of published panes, and refused ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline
from headrace.plan.steps import fingerprint, steps_of

MINUTE = timedelta(minutes=1)


def declare(
    window: hr.Window | hr.Sliding | hr.Session | None = None, emit: Any = "updates"
) -> tuple[hr.App, hr.Aggregation]:
    app = hr.App("shop")
    source = app.topic("orders", schema="item string, at timestamp", event_time="at")
    window = hr.tumbling(MINUTE) if window is None else window
    lateness = hr.Lateness(MINUTE, MINUTE)
    step = hr.aggregate(
        source, by="item", window=window, lateness=lateness, emit=emit, n=hr.count()
    )
    return app, step


@pytest.mark.parametrize(
    "early", ["often", 0, -1, True, 1.5, timedelta(0), -MINUTE, None], ids=repr
)
def test_a_wish_that_makes_no_sense_is_refused_at_its_line(early: Any) -> None:
    app, step = declare()
    with pytest.raises(InvalidPipeline, match=r"early (cannot|must) be") as refused:
        app.publish("out", step, early=early)
    assert "test_panes.py" in str(refused.value)
    assert not app.outputs


def test_retractions_are_wanted_or_not() -> None:
    app, step = declare()
    with pytest.raises(InvalidPipeline, match="retractions must be True or False, not 'yes'"):
        app.publish("out", step, retractions="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", [{"early": "never"}, {"retractions": True}], ids=str)
def test_only_what_can_change_has_panes_to_choose(choice: dict[str, Any]) -> None:
    app, step = declare(emit="final")
    with pytest.raises(InvalidPipeline, match="are final: they have no early panes"):
        app.publish("out", step, **choice)
    with pytest.raises(InvalidPipeline, match="rows are written once"):
        app.publish("out", step.input, **choice)


@pytest.mark.parametrize("name", ["pane", "revision"])
def test_what_every_row_says_cannot_be_said_twice(name: str) -> None:
    app, step = declare()
    lateness = hr.Lateness(MINUTE, MINUTE)
    window = hr.tumbling(MINUTE)
    made: dict[str, Any] = {name: hr.count()}
    again = hr.aggregate(step.input, by="item", window=window, lateness=lateness, **made)
    with pytest.raises(InvalidPipeline, match=f"a column '{name}' of its own"):
        app.publish("out", again)


def test_a_sliding_window_waits_for_no_rows() -> None:
    app, step = declare(hr.sliding(MINUTE))
    with pytest.raises(InvalidPipeline, match="there is one for every event"):
        app.publish("out", step, early=3)
    app.publish("out", step, early=MINUTE)


def test_what_is_published_is_no_part_of_what_is_computed() -> None:
    found = []
    for choice in ({}, {"early": 3}, {"early": MINUTE, "retractions": True}):
        app, step = declare()
        app.view("sales", step)
        app.publish("out", step, **choice)
        (made,) = steps_of(app)
        found.append(fingerprint(made))
    assert len(set(found)) == 1
