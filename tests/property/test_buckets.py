"""For any rows in any number of visits, a bucket's result is the oracle's, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import micros, to_datetime
from headrace.log.state import Topic
from headrace.operators.stateful.bucket import NEWEST, WATERMARK, Rules, visit
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.meaning import Folded, folded
from headrace.operators.stateful.user_call import Signature
from headrace.oracle.events import Event
from headrace.oracle.rows import rows_of
from headrace.plan import metadata
from headrace.schema.ddl import parse_schema
from tests.property import folds
from tests.property.folding import counted

SECOND = 1_000_000
DELAY = 20 * SECOND
TTL = 100 * SECOND
COLUMNS = parse_schema("k string, n int, at timestamp")
ORDER = (
    metadata.TIME,
    WATERMARK,
    metadata.COMMIT,
    metadata.PARTITION,
    metadata.OFFSET,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]


def step(function: Any, state: str, output: str, order: Any) -> Stateful:
    """A stateful step on its own topic."""
    topic = hr.App("a").topic("events", schema="k string, n int, at timestamp", event_time="at")
    return hr.stateful(
        topic,
        function,
        by="k",
        state=state,
        output=output,
        delay=timedelta(seconds=20),
        ttl=timedelta(seconds=100),
        order=order,
    )


def rules_of(made: Stateful, columns: pa.Schema = COLUMNS) -> Rules:
    keys = [columns.field(name) for name in made.by]
    signature = Signature(made.by, pa.schema([*keys, *made.kept]), made.output_of(columns))
    return Rules(
        made.function, signature, columns, ORDER, made.order == "time",
        micros(made.ttl), made.on_error == "dead letter",
    )  # fmt: skip


@st.composite
def logs(draw: Draw) -> list[list[Event]]:
    """Commits of rows whose event times advance irregularly."""
    topic = Topic("events", 1, COLUMNS, None, "at")
    now, frontier, commits, offset = 1_000 * SECOND, None, [], 0
    for number in range(draw(st.integers(0, 12))):
        now += draw(st.sampled_from([0, 1, 10, 29, 30, 31, 90, 130, 300])) * SECOND
        commit = []
        for _ in range(draw(st.integers(1, 5))):
            at = now - draw(st.sampled_from([0, 0, 1, 5, 19, 20, 21, 40])) * SECOND
            row = {
                "k": draw(st.sampled_from(["a", "b", None])),
                "n": draw(st.sampled_from([None, 1, 2])),
                "at": to_datetime(at),
            }
            commit.append(Event(topic, number + 1, 0, offset, at, frontier, row))
            offset += 1
        times = [event.event_time for event in commit if event.event_time is not None]
        frontier = max(times if frontier is None else [*times, frontier])
        commits.append(commit)
    return commits


def visited(
    made: Stateful, commits: list[list[Event]], cuts: list[bool], columns: pa.Schema = COLUMNS
) -> tuple[Any, Any, Any]:
    """Visit a bucket with the rows; returns the output, the state, and the waiting rows."""
    rules = rules_of(made, columns)
    kept, held = rules.kept.empty_table(), rules.rows.empty_table()
    waiting: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    frontier: int | None = None
    for number, commit in enumerate(commits):
        for event in commit:
            assert event.event_time is not None
            watermark = -(1 << 62) if event.frontier is None else event.frontier - DELAY
            if event.event_time > watermark:
                (row,) = rows_of(made.input, event)
                waiting.append(
                    {
                        **row,
                        metadata.TIME: event.event_time,
                        WATERMARK: watermark,
                        metadata.COMMIT: event.commit,
                        metadata.PARTITION: event.partition,
                        metadata.OFFSET: event.offset,
                    }
                )
            frontier = max(event.event_time, frontier or event.event_time)
        if cuts[number % len(cuts)] or number == len(commits) - 1:
            assert frontier is not None
            arrived = pa.Table.from_pylist(waiting[::-1], rules.rows)
            waiting = []
            made_of_it = visit(rules, kept, held, arrived, frontier - DELAY)
            kept, held = made_of_it.kept, made_of_it.held
            assert kept.schema.equals(rules.kept)
            output += [row for table in made_of_it.outputs for row in table.to_pylist()]
    return output, kept, held


def check(made: Stateful, commits: list[list[Event]], cuts: list[bool]) -> Folded:
    """Check that the bucket's result is the oracle's."""
    events = [event for commit in commits for event in commit]
    times = [event.event_time for event in events if event.event_time is not None]
    found = folded(made, events, {"events": max(times, default=None)}, COLUMNS)
    output, kept, _ = visited(made, commits, cuts)
    assert counted(output) == counted(found.rows)
    states = [{k: v for k, v in row.items() if k != NEWEST} for row in kept.to_pylist()]
    assert counted(states) == counted(list(found.states.values()))
    return found


cuts = st.lists(st.booleans(), min_size=1, max_size=5)


@given(logs(), cuts)
def test_rows_in_order_of_time_are_the_oracles(commits: list[list[Event]], cut: list[bool]) -> None:
    check(step(folds.totals, folds.TOTALS_STATE, folds.TOTALS, "time"), commits, cut)


@given(logs(), cuts)
def test_rows_as_they_arrive_are_the_oracles(commits: list[list[Event]], cut: list[bool]) -> None:
    check(step(folds.totals, folds.TOTALS_STATE, folds.TOTALS, "arrival"), commits, cut)


@given(logs(), cuts)
def test_timers_are_the_oracles(commits: list[list[Event]], cut: list[bool]) -> None:
    check(step(folds.visits, folds.VISITS_STATE, folds.VISITS, "time"), commits, cut)


@given(logs(), cuts)
def test_a_timer_that_is_left_as_it_is_rings_once(
    commits: list[list[Event]], cut: list[bool]
) -> None:
    check(step(folds.reminders, folds.VISITS_STATE, folds.VISITS, "time"), commits, cut)


def test_all_kinds_of_things_come_up() -> None:
    seen: Counter[str] = Counter()

    @given(logs())
    def law(commits: list[list[Event]]) -> None:
        made = step(folds.totals, folds.TOTALS_STATE, folds.TOTALS, "time")
        found = check(made, commits, [True])
        seen["late"] += len(found.late)
        seen["forgotten"] += sum(row["rows"] == 1 for row in found.rows) > 3
        seen["null keys"] += sum(row["k"] is None for row in found.rows)
        seen["gone on"] += sum(row["rows"] > 1 for row in found.rows)

    law()
    assert all(seen[kind] for kind in ("late", "forgotten", "null keys", "gone on")), seen
