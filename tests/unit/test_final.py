"""A window is final exactly from the moment on at which no row can change it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.testing import scripted_log
from tests.property.scripts import LATENESS, NOW, SECOND, write
from tests.property.sinking import sink_all
from tests.property.test_publishing import TYPES, declare

END = NOW + 60 * SECOND
MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("frontier", "state"),
    [
        (END + LATENESS.delay - MOMENT, "open"),
        (END + LATENESS.delay, "fired"),
        (END + LATENESS.delay + LATENESS.grace - MOMENT, "fired"),
        (END + LATENESS.delay + LATENESS.grace, "final"),
    ],
    ids=["before it fires", "when it fires", "before its grace is over", "when it is over"],
)
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_the_label_of_a_row_changes_at_the_very_moment(
    frontier: Any, state: str, emit: str
) -> None:
    app, _, step = declare("tumbling", emit)
    with scripted_log(start=NOW) as log:
        write(log, app, [[{"k": "a", "n": 1, "tags": None, "at": NOW + SECOND}]])
        log.log.advance("events", frontier, ahead=True)
        results = sink_all(log.log, step, TYPES, max_commits=9)
        shown, published = results.view("counts"), results.topic("out")
    expected = [state] if emit == "updates" or state == "final" else []
    assert [row["_state"] for row in shown] == expected
    pane = "final" if emit == "final" else "early" if state == "open" else "on time"
    assert [row["pane"] for row in published] == [pane] * len(expected)
