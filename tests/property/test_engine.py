"""For any arrival order and any batches, Spark's result is the oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import micros
from headrace.operators.window.windows import AnyWindow
from headrace.oracle.events import events_of
from headrace.oracle.rows import rows_of
from headrace.pipeline.stream import sources
from headrace.testing import Results, scripted_log
from tests.property.judging import (
    advances,
    check_changelog,
    check_dead,
    check_late,
    check_law,
    check_published,
    check_said,
    check_view,
    what_it_means,
)
from tests.property.scripts import (
    BEGIN,
    CHOICES,
    FAR,
    LATENESS,
    NOW,
    SCHEMA,
    SECOND,
    Commit,
    next_era,
    quickly,
    scripts,
    write,
)
from tests.spark import shuffling

AGGREGATES = {
    "rows": hr.count(),
    "some": hr.count("n"),
    "total": hr.sum("n"),
    "mean": hr.average("n"),
    "low": hr.min("n"),
    "high": hr.max("n"),
    "kinds": hr.distinct("n"),
    "about": hr.approx_distinct("n"),
    "half": hr.quantile("n", 0.5),
    "opening": hr.first("n"),
    "closing": hr.last("n"),
}

WINDOWS: dict[str, AnyWindow] = {
    "tumbling": hr.tumbling(60 * SECOND),
    "shifted": hr.tumbling(45 * SECOND, offset=7 * SECOND),
    "hopping": hr.hopping(90 * SECOND, 30 * SECOND),
    "uneven": hr.hopping(70 * SECOND, 30 * SECOND),
    "cumulative": hr.cumulative(90 * SECOND, step=30 * SECOND, offset=7 * SECOND),
    "sliding": hr.sliding(50 * SECOND),
    "session": hr.session(30 * SECOND),
}


def declare(
    emit: Any, partitions: int, frontier: str, windows: Sequence[str]
) -> tuple[hr.App, dict[str, hr.Aggregation]]:
    """An application with a view for each of these windows, with all aggregates."""
    app = hr.App("law")
    source = app.topic(
        "events",
        schema=SCHEMA,
        event_time="at",
        partitions=partitions,
        settings={"frontier": frontier},
    )
    steps = {}
    for name in windows:
        # Sessions cannot merge the sketch of an approximate top.
        more = {} if name == "session" else {"common": hr.approx_top("n", 2)}
        made = {**AGGREGATES, **more}
        step = steps[name] = hr.aggregate(
            source, by="k", window=WINDOWS[name], lateness=LATENESS, emit=emit, **made
        )
        app.view(name, step)
        app.publish(f"{name}.out", step)
        app.publish(f"{name}.late", step.late)
        for option, choice in CHOICES.items() if emit == "updates" else ():
            if name != "sliding" or option != "rows":
                app.publish(f"{name}.{option}", step, **choice)
    return app, steps


def tally(seen: Counter[str], aggregation: hr.Aggregation, results: Results) -> None:
    """Count the kinds of rows and logs that occurred."""
    found, events = what_it_means(aggregation, results)
    seen["runs"] += 1
    seen["frontiers moved"] += sum(
        len(advances(results.log, source.topic.name)) for source in sources(aggregation)
    )
    seen["empty logs"] += not events
    newest: int | None = None
    for event in events:
        if event.event_time is not None and event.dead is None:
            seen["out of order"] += newest is not None and event.event_time < newest
            newest = event.event_time if newest is None else max(newest, event.event_time)
    delay = micros(aggregation.lateness.delay)
    for pane in found.panes.values():
        seen["amended panes"] += pane.amended
        seen["on-time rows"] += len(pane.rows)
    for event in events:
        if event.dead is None and event.event_time is not None and event.frontier is not None:
            ends = aggregation.window.ends(event.event_time)
            within = [end for end in ends if end <= event.frontier - delay]
            late = [
                end
                for end in within
                if end + micros(aggregation.lateness.grace) <= event.frontier - delay
            ]
            seen["rows within grace"] += len(within) - len(late)
    seen["late rows"] += len(found.late)
    seen["dead rows"] += len(found.dead)


REACHED = (
    "empty logs", "frontiers moved", "out of order", "amended panes", "on-time rows",
    "rows within grace", "late rows", "dead rows",
)  # fmt: skip


def judge(app: hr.App, steps: dict[str, hr.Aggregation], results: Results) -> None:
    for name, step in steps.items():
        check_view(name, step, results)
        check_law(name, step, results)
        check_late(f"{name}.late", step, results)
        check_dead(app.name, name, step, results)
        check_published(f"{name}.out", step, results)
        check_changelog(f"{app.name}.{name}.changes", step, results, name)
        for output in app.outputs.values():
            if output.stream == step and step.emit == "updates":
                check_said(output, name, results)


def declare_steps(windows: Sequence[str]) -> tuple[hr.App, dict[str, hr.Aggregation]]:
    """Stateless steps of every kind before the windows, over two topics, one of them read twice."""
    app = hr.App("steps")
    left = app.topic("left", schema=SCHEMA, event_time="at", partitions=2)
    right = app.topic("right", schema=SCHEMA, event_time="at")
    chosen = hr.derive(hr.filter(left, "n > 0 or n is null"), tag="upper(k)", n="n + 1")
    tagged = hr.explode(right, "tags", into="tag")
    small = hr.split(right, few="n < 2", many="n >= 2")
    again = hr.rekey(hr.merge(small["few"], small["many"]), tag="'again'")
    columns = ("k", "n", "tag")
    both = hr.merge(*(hr.select(part, *columns) for part in (chosen, tagged, again)))
    steps = {}
    for name in windows:
        step = steps[name] = hr.aggregate(
            both,
            by=["tag", "k"],
            window=WINDOWS[name],
            lateness=LATENESS,
            rows=hr.count(),
            total=hr.sum("n"),
            opening=hr.first("n"),
            closing=hr.last("n"),
        )
        app.view(name, step)
        app.publish(f"{name}.late", step.late)
    app.publish("chosen", hr.select(chosen, "tag", "n"))
    return app, steps


def explore_steps(examples: int, windows: Sequence[str]) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples)
    @given(scripts(), scripts(), st.sampled_from([1, 3, 1_000]))
    def law(one: list[Commit], other: list[Commit], max_commits: int) -> None:
        app, steps = declare_steps(windows)
        era = next_era(seen)
        with scripted_log(start=NOW + era) as log:
            write(log, app, one, "left", era)
            write(log, app, other, "right", era)
            results = log.run(app, spark=shuffling(2), max_commits=max_commits)
            for name, step in steps.items():
                tally(seen, step, results)
                check_view(name, step, results)
                check_law(name, step, results)
                check_late(f"{name}.late", step, results)
                check_dead(app.name, name, step, results)
            check_chosen(app, results)

    law()
    return seen


def check_chosen(app: hr.App, results: Results) -> None:
    """Check that a stream that is only published has exactly its rows, in partition order."""
    stream = app.outputs["chosen"].stream
    records = [record for batch in results.log.read("left") for record in batch.records()]
    events = events_of(results.log.topic("left").topic, records)
    expected = [row for event in events if event.dead is None for row in rows_of(stream, event)]
    assert sorted(map(repr, results.topic("chosen"))) == sorted(map(repr, expected))
    law = results.law("chosen")
    assert law.holds
    assert law.counted == len(expected)
    assert law.rows == law.counted + law.filtered + law.dead


def row(at: datetime | None) -> dict[str, Any]:
    return {"k": "a", "n": 1, "tags": ["x"], "at": at}


EVERYTHING: list[Commit] = [
    [row(None), row(FAR), row(BEGIN), row(BEGIN + 135 * SECOND)],
    [row(BEGIN + 200 * SECOND)],
    [row(BEGIN + 130 * SECOND), row(BEGIN + SECOND)],
    BEGIN + 300 * SECOND,
]
"""Kinds of rows: dead, on time, out of order, within grace and late."""


def explore(examples: int, windows: Sequence[str], *, fresh: bool = False) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=fresh)
    @given(
        scripts(),
        st.sampled_from(["updates", "final"]),
        st.sampled_from([1, 2, 5, 1_000]),
        st.sampled_from([1, 3]),
        st.sampled_from([1, 2]),
        st.sampled_from(["events", "events", "arrival", "punctuation"]),
    )
    @example(EVERYTHING, "updates", 1, 1, 1, "events")
    def law(
        script: list[Commit],
        emit: str,
        max_commits: int,
        partitions: int,
        shuffles: int,
        frontier: str,
    ) -> None:
        app, steps = declare(emit, partitions, frontier, windows)
        era = next_era(seen)
        with scripted_log(start=BEGIN + era) as log:
            write(log, app, script, era=era)
            seen[f"time by {frontier}"] += 1
            results = log.run(app, spark=shuffling(shuffles), max_commits=max_commits)
            for step in steps.values():
                tally(seen, step, results)
            judge(app, steps, results)

    law()
    return seen


def report(seen: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n  reached:", ", ".join(f"{what} {n:,}" for what, n in sorted(seen.items())))
    assert all(seen[what] for what in REACHED), seen


def test_spark_agrees_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    report(
        explore(2, ["shifted", "hopping", "cumulative", "sliding", "session"], fresh=True), capsys
    )


@pytest.mark.slow
def test_spark_agrees_with_the_oracle_on_stateless_steps_at_length(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(explore_steps(12, ["tumbling", "uneven", "sliding", "session"]), capsys)


@pytest.mark.slow
def test_spark_agrees_with_the_oracle_at_length(capsys: pytest.CaptureFixture[str]) -> None:
    report(explore(24, list(WINDOWS)), capsys)
