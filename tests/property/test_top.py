"""Rankings are the oracle's, for any log, any batches and any aggregation."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.top.state import RankTable
from headrace.operators.window.windows import AnyWindow
from headrace.plan.steps import Step, steps_of
from headrace.testing import POINTS, Crash, crash_at, scripted_log
from tests.property.judging import check_law
from tests.property.ranking import check_fired, check_ranking
from tests.property.scripts import (
    ERAS,
    LATENESS,
    NOW,
    SCHEMA,
    SECOND,
    Commit,
    quickly,
    scripts,
    write,
)  # fmt: skip
from tests.property.sinking import sink_all
from tests.spark import shuffling

TYPES = {
    "k": pa.string(),
    "n": pa.int32(),
    "rows": pa.int64(),
    "total": pa.int64(),
    "low": pa.int32(),
}
WINDOWS: dict[str, AnyWindow] = {
    "tumbling": hr.tumbling(60 * SECOND),
    "hopping": hr.hopping(90 * SECOND, 30 * SECOND),
    "cumulative": hr.cumulative(90 * SECOND, step=30 * SECOND),
    "session": hr.session(30 * SECOND),
    "running": hr.running(hr.FOREVER),
}
CUTS = st.sampled_from([1, 2, 5, 1_000])
AGGREGATES = {"rows": hr.count(), "total": hr.sum("n"), "low": hr.min("n")}


def declare(window: str, emit: Any, by: str, within: Sequence[str]) -> tuple[hr.App, hr.Top, Step]:
    app = hr.App("board")
    source = app.topic("events", schema=SCHEMA, event_time="at")
    counts = hr.aggregate(
        source, by=["k", "n"], window=WINDOWS[window], lateness=LATENESS, emit=emit, **AGGREGATES
    )
    board = hr.top(counts, 2, by=by, within=within)
    app.view("board", board)
    app.publish("out", board)
    app.publish("late", counts.late)
    if emit == "updates":
        app.publish("pairs", board, retractions=True)
        app.publish("calm.pairs", board, early=25 * SECOND, retractions=True)
        app.publish("never.pairs", board, early="never", retractions=True)
    (step,) = steps_of(app)
    return app, board, step


def check(board: hr.Top, results: Any) -> None:
    for topic in ("out", "pairs") if board.emit == "updates" else ("out",):
        check_ranking(board, "board", results, topic)
    for topic in ("calm.pairs", "never.pairs") if board.emit == "updates" else ():
        check_fired(board, results, topic)


BOARDS = st.tuples(
    st.sampled_from(["rows", "total", "low"]), st.sampled_from([(), ("k",), ("n", "k")])
)


@pytest.mark.parametrize("window", WINDOWS)
@quickly(12)
@given(
    scripts(), st.sampled_from(ERAS), BOARDS, CUTS, CUTS,
    st.sampled_from(["updates", "updates", "final"]),
)  # fmt: skip
def test_a_ranking_is_the_oracles(
    window: str, script: list[Commit], era: timedelta, kind: Any, cut: int, then: int, emit: str
) -> None:
    live = window in ("session", "running")
    app, board, step = declare(window, "updates" if live else emit, *kind)
    with scripted_log(start=NOW + era) as log:
        write(log, app, script[:7], era=era)
        check(board, sink_all(log.log, step, TYPES, max_commits=cut))
        write(log, app, script[7:], era=era)
        check(board, sink_all(log.log, step, TYPES, max_commits=then))


@pytest.mark.parametrize("window", ["tumbling", "session"])
@quickly(8)
@given(scripts(), BOARDS, st.sampled_from(POINTS[3:9]), st.integers(1, 8))
def test_a_crash_while_a_ranking_is_stored_or_sent_changes_nothing(
    window: str, script: list[Commit], kind: Any, point: str, nth: int
) -> None:
    app, board, step = declare(window, "updates", *kind)
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        with contextlib.suppress(Crash):
            sink_all(log.log, step, TYPES, max_commits=2, crash_point=crash_at(point, nth))
        check(board, sink_all(log.log, step, TYPES, max_commits=2))


def row(n: int, second: int, key: str | None = "a") -> dict[str, Any]:
    return {"k": key, "n": n, "at": NOW + second * SECOND}


def test_a_total_that_expires_leaves_the_board_when_only_time_moves_on() -> None:
    app, board, step = declare("session", "updates", "rows", ())
    with scripted_log(start=NOW) as log:
        write(log, app, [[row(1, 0), row(1, 1)], [row(2, 100)]])
        results = sink_all(log.log, step, TYPES, max_commits=1)
        assert [found["n"] for found in results.view("board")] == [1, 2]
        write(log, app, [NOW + 150 * SECOND])
        results = sink_all(log.log, step, TYPES, max_commits=1)
        check(board, results)
        assert [found["n"] for found in results.view("board")] == [2]


def test_a_ranking_that_is_not_looked_at_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    app, board, step = declare("session", "updates", "rows", ())
    monkeypatch.setattr(RankTable, "_touch_closed", lambda *_: None)
    with scripted_log(start=NOW) as log:
        write(log, app, [[row(1, 0), row(1, 1)], [row(2, 100)], NOW + 150 * SECOND])
        with pytest.raises(AssertionError):
            check(board, sink_all(log.log, step, TYPES, max_commits=1))


def explore(examples: int, windows: Sequence[str]) -> None:
    @quickly(examples)
    @given(scripts(), BOARDS, st.sampled_from([1, 3, 1_000]))
    def law(script: list[Commit], kind: Any, max_commits: int) -> None:
        for window in windows:
            app, board, _ = declare(window, "updates", *kind)
            with scripted_log(start=NOW) as log:
                write(log, app, script)
                results = log.run(app, spark=shuffling(2), max_commits=max_commits)
                check(board, results)
                check_law("board", board.of, results)

    law()


def test_spark_ranks_as_the_oracle_does() -> None:
    app, board, _ = declare("hopping", "updates", "total", ("k",))
    script: list[Commit] = [
        [row(1, 0), row(1, 1), row(7, 2), row(2, 2, None)],
        [row(2, 50), row(2, 51), row(2, 52), row(7, 70, "b")],
        [row(1, 120), row(7, 3)],
        NOW + 400 * SECOND,
    ]
    with scripted_log(start=NOW) as log:
        write(log, app, script)
        results = log.run(app, spark=shuffling(2), max_commits=2)
        check(board, results)
        check_law("board", board.of, results)


@pytest.mark.slow
def test_spark_ranks_as_the_oracle_does_at_length() -> None:
    explore(10, list(WINDOWS))
