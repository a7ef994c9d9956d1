"""One batch over a log gives what the stream gives, late rows and dead letters included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.log import Log
from headrace.testing import Results, scripted_log
from tests.property.scripts import (
    BEGIN,
    LATENESS,
    SCHEMA,
    SECOND,
    Commit,
    next_era,
    quickly,
    scripts,
    write,
)
from tests.property.test_engine import EVERYTHING, declare, declare_steps, row
from tests.spark import shuffling

WINDOWS = ("tumbling", "uneven", "cumulative", "sliding", "session")


def rows(table: pa.Table) -> list[str]:
    """Rows in any order; Python cannot hold all times."""
    texts = [c.cast(pa.string()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return sorted(map(repr, pa.table(texts, names=table.column_names).to_pylist()))


def stored(log: Log, topic: str) -> pa.Table:
    batches = [batch.data for batch in log.read(topic)]
    return pa.Table.from_batches(batches, log.topic(topic).topic.schema)


def check_equal(app: hr.App, batch: hr.BatchResult, stream: Results) -> None:
    """Everything that a batch returns is what the stream has stored and published."""
    with hr.open_views(stream.log.home, app=app.name) as views:
        for name in app.views:
            assert rows(batch.view(name)) == rows(views.to_arrow(name)), name
    steps = {progress.step: progress.law for progress in stream.steps}
    assert batch.laws == steps
    for topic in app.outputs:
        if topic.endswith(".late"):
            assert rows(batch.late(topic.removesuffix(".late"))) == rows(stored(stream.log, topic))
    # Files are not appended at the same moment.
    letters = (batch.dead, stored(stream.log, f"{app.name}.dead"))
    dead = [table.drop_columns("appended") for table in letters]
    assert rows(dead[0]) == rows(dead[1])


def compare(app: hr.App, log: Any, seen: Counter[str], max_commits: int) -> hr.BatchResult:
    spark = shuffling(2)
    head = log.log.head()
    stream = log.run(app, spark=spark, max_commits=max_commits)
    batch = hr.run(app, log.log, over=hr.LogRange(until=head), spark=spark)
    check_equal(app, batch, stream)
    seen["dead"] += batch.dead.num_rows
    for law in batch.laws.values():
        seen["counted"] += law.counted
        seen["late"] += law.late
        seen["duplicates"] += law.duplicates
    return batch


def explore(examples: int, windows: Sequence[str]) -> Counter[str]:
    seen: Counter[str] = Counter()

    @quickly(examples, fresh=True)
    @given(
        scripts(),
        st.sampled_from(["updates", "final"]),
        st.sampled_from([1, 1_000]),
        st.sampled_from(["events", "arrival", "punctuation"]),
    )
    @example(EVERYTHING, "updates", 2, "events")
    def law(script: list[Commit], emit: str, max_commits: int, frontier: str) -> None:
        app, _ = declare(emit, 2, frontier, windows)
        era = next_era(seen)
        with scripted_log(start=BEGIN + era) as log:
            write(log, app, script, era=era)
            compare(app, log, seen, max_commits)

    law()
    return seen


def test_windows_are_those_of_the_stream() -> None:
    seen = explore(1, ("uneven", "session"))
    assert all(seen[kind] for kind in ("dead", "counted", "late"))


@pytest.mark.slow
def test_windows_of_every_kind_are_those_of_the_stream() -> None:
    seen = explore(15, WINDOWS)
    assert all(seen[kind] for kind in ("dead", "counted", "late"))


@pytest.mark.slow
def test_stateless_steps_before_windows_are_those_of_the_stream() -> None:
    seen: Counter[str] = Counter()
    app, _ = declare_steps(("tumbling", "session"))
    with scripted_log(start=BEGIN) as log:
        for topic in ("left", "right"):
            write(log, app, EVERYTHING, topic)
        batch = compare(app, log, seen, 2)
        assert rows(batch.topic("chosen")) == rows(stored(log.log, "chosen"))
        assert batch.topic("chosen").num_rows
    assert all(seen[kind] for kind in ("dead", "counted", "late"))


@pytest.mark.slow
def test_rankings_duplicates_and_joins_are_those_of_the_stream() -> None:
    seen: Counter[str] = Counter()
    app = hr.App("more")
    left = app.topic("left", schema=SCHEMA, event_time="at")
    right = app.topic("right", schema=SCHEMA, event_time="at")
    counts = hr.aggregate(left, by="k", window=hr.tumbling(60 * SECOND), lateness=LATENESS,
                          rows=hr.count())  # fmt: skip
    app.view("best", hr.top(counts, 1, by="rows"))
    once = hr.deduplicate(left, by=["k", "n"], ttl=60 * SECOND, delay=20 * SECOND)
    app.publish("once", once)
    app.publish("once.late", once.late)
    both = hr.join(
        left,
        right,
        on="k",
        before=30 * SECOND,
        after=30 * SECOND,
        delay=20 * SECOND,
        how="left",
        prefix="r_",
    )
    app.publish("both", both)
    app.publish("both.late", both.late)
    with scripted_log(start=BEGIN) as log:
        for topic in ("left", "right"):
            write(log, app, [[row(BEGIN), row(BEGIN + SECOND)], *EVERYTHING], topic)
        batch = compare(app, log, seen, 2)
        for topic in ("once", "both"):
            assert rows(batch.topic(topic)) == rows(stored(log.log, topic))
    assert all(seen[kind] for kind in ("dead", "counted", "late", "duplicates"))
