"""The oracle: its windows, lateness and aggregates, checked against the log itself."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import VirtualClock, micros, to_datetime, to_micros
from headrace.log.file.log import FileLog
from headrace.operators.window.aggregates import (
    average,
    count,
    distinct,
    first,
    last,
    max,
    min,
    quantile,
    sum,
)
from headrace.operators.window.declare import Aggregation, aggregate
from headrace.operators.window.meaning import Meaning, meaning
from headrace.operators.window.windows import Window, hopping, tumbling
from headrace.oracle.events import Event, events_of
from headrace.pipeline.app import App
from headrace.pipeline.row_steps import derive, explode, filter, merge
from headrace.pipeline.time import Lateness

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = "key string, n int, at timestamp"

moments = st.one_of(
    st.none(), st.integers(-300, 30).map(lambda s: NOW + s * SECOND), st.just(NOW + 9_000 * SECOND)
)
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5), moments), max_size=8)


def counted(window: Window, lateness: Lateness) -> Aggregation:
    source = App("test").topic("t", schema=SCHEMA, key="key", event_time="at", partitions=3)
    return aggregate(source, by="key", window=window, lateness=lateness, n=count())


def commit_all(folder: Path, commits: list[list[tuple[str, int, datetime | None]]]) -> FileLog:
    log = FileLog(folder, clock=VirtualClock(NOW))
    log.create_topic("t", schema=SCHEMA, key="key", event_time="at", partitions=3)
    with log.producer(linger=timedelta(hours=1), acks="written") as producer:
        for commit in commits:
            for key, n, at in commit:
                producer.send("t", {"key": key, "n": n, "at": at})
            producer.flush()
    return log


def read(log: FileLog) -> list[Event]:
    records = [record for batch in log.read("t") for record in batch.records()]
    return events_of(log.topic("t").topic, records)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(rows, max_size=8), st.integers(1, 90), st.integers(1, 3), st.integers(0, 90))
def test_every_row_is_counted_filtered_late_or_dead_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[str, int, datetime | None]]],
    every: int,
    times: int,
    delay: int,
) -> None:
    aggregation = counted(
        hopping(every * times * SECOND, every * SECOND), Lateness(delay * SECOND, delay * SECOND)
    )
    with commit_all(tmp_path_factory.mktemp("log") / "log", commits) as log:
        events = read(log)
        found = meaning(aggregation, events)
        assert found.rows_in == log.topic("t").records
        assert found.pairs == found.counted + len(found.late)
        assert found.pairs == times * (found.rows_in - len(found.dead) - found.filtered)
        assert found.counted == len([row for pane in found.panes.values() for row in pane.rows])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(rows, max_size=8))
def test_the_oracle_and_the_log_agree_on_every_frontier(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[str, int, datetime | None]]],
) -> None:
    with commit_all(tmp_path_factory.mktemp("log") / "log", commits) as log:
        for event in read(log):
            assert event.frontier == log.frontier("t", event.commit - 1)


def at(second: float, frontier: float | None = None, commit: int = 1, **row: Any) -> Event:
    """An event at a second after NOW, which meets a frontier at another second."""
    topic = App("test").topic("t", schema=SCHEMA, key="key", event_time="at").topic
    moment = NOW + second * SECOND
    before = None if frontier is None else to_micros(NOW + frontier * SECOND)
    values = {"key": "a", "n": 1, "at": moment, **row}
    return Event(topic, commit, 0, commit, to_micros(NOW), before, values)


MINUTE = tumbling(60 * SECOND)


def fate(window: Window, lateness: Lateness, event: Event) -> str:
    found: Meaning = meaning(counted(window, lateness), [event])
    if found.late:
        return "late"
    (pane,) = found.panes.values()
    return "amends" if pane.amended else "on time"


@pytest.mark.parametrize(
    ("frontier", "expected"),
    [
        (None, "on time"),
        (69.999999, "on time"),
        (70, "amends"),
        (99.999999, "amends"),
        (100, "late"),
    ],
)
def test_a_window_fires_when_the_watermark_reaches_its_end_and_closes_after_its_grace(
    frontier: float | None, expected: str
) -> None:
    lateness = Lateness(delay=10 * SECOND, grace=30 * SECOND)
    assert fate(MINUTE, lateness, at(5, frontier)) == expected


def test_without_grace_a_row_at_the_watermark_is_late() -> None:
    assert fate(MINUTE, Lateness(timedelta(0), timedelta(0)), at(5, 60)) == "late"


def test_a_row_can_be_late_for_one_window_and_on_time_for_the_next() -> None:
    aggregation = counted(hopping(120 * SECOND, 60 * SECOND), Lateness(0 * SECOND, 0 * SECOND))
    found = meaning(aggregation, [at(5, 90)])
    assert len(found.late) == len(found.panes) == 1


def test_the_first_rows_of_a_topic_are_never_late() -> None:
    lateness = Lateness(timedelta(0), timedelta(0))
    found = meaning(counted(MINUTE, lateness), [at(-3000), at(300)])
    assert not found.late


def test_a_row_without_a_time_or_ahead_of_the_clock_is_dead_and_says_why() -> None:
    found = meaning(
        counted(MINUTE, Lateness(SECOND, SECOND)), [at(3_601), at(3_600), at(0, at=None)]
    )
    assert [why for _, why in found.dead] == ["ahead of the clock", "no event time"]
    assert found.counted == 1


def test_a_window_is_final_when_nothing_can_change_it_any_more() -> None:
    aggregation = counted(MINUTE, Lateness(10 * SECOND, 30 * SECOND))
    found = meaning(aggregation, [at(5), at(65)])
    start = to_micros(NOW)
    end = start + micros(60 * SECOND)
    assert not found.final(aggregation, end + micros(40 * SECOND) - 1)
    assert list(found.final(aggregation, end + micros(40 * SECOND))) == [("a", start)]


def test_every_aggregate_means_what_it_says() -> None:
    source = App("test").topic("t", schema=SCHEMA, key="key", event_time="at")
    made = aggregate(
        source, by="key", window=MINUTE, lateness=Lateness(SECOND, SECOND),
        rows=count(), some=count("n"), all=sum("n"), mean=average("n"), low=min("n"),
        high=max("n"), kinds=distinct("n"), half=quantile("n", 0.5),
        earliest=first("n"), latest=last("n"),
    )  # fmt: skip
    events = [
        at(5, commit=1, n=4),
        at(1, commit=2, n=7),
        at(9, commit=3, n=None),
        at(5, commit=4, n=4),
    ]
    (pane,) = meaning(made, events).panes.values()
    assert pane.result(made.aggregates) == {
        "rows": 4, "some": 3, "all": 15, "mean": 5, "low": 4, "high": 7, "kinds": 2, "half": 4,
        "earliest": 7, "latest": None,
    }  # fmt: skip
    assert pane.revision == 4


def test_the_order_within_a_commit_does_not_matter() -> None:
    source = App("test").topic("t", schema=SCHEMA, key="key", event_time="at", partitions=3)
    made = aggregate(
        source,
        by="key",
        window=MINUTE,
        lateness=Lateness(5 * SECOND, 5 * SECOND),
        first=first("n"),
        last=last("n"),
    )
    choose = random.Random(1)
    events = [at(choose.randint(0, 200), 60, commit=i // 5, n=i) for i in range(50)]
    expected = meaning(made, events)
    choose.shuffle(events)
    again = meaning(made, events)
    for key, pane in expected.panes.items():
        assert again.panes[key].result(made.aggregates) == pane.result(made.aggregates)
    assert len(again.late) == len(expected.late)


def test_stateless_steps_filter_derive_explode_and_merge() -> None:
    app = App("test")
    source = app.topic("t", schema=SCHEMA, key="key", event_time="at")
    busy = filter(source, "n > 1 and key is not null")
    twice = derive(busy, key="upper(key)", n="n * 2")
    made = aggregate(
        merge(twice, busy),
        by="key",
        window=MINUTE,
        lateness=Lateness(SECOND, SECOND),
        total=sum("n"),
    )
    found = meaning(made, [at(1, n=1), at(2, n=2), at(3, n=None), at(4, n=5)])
    totals = {key[0]: pane.result(made.aggregates)["total"] for key, pane in found.panes.items()}
    assert totals == {"A": 14, "a": 7}
    assert found.filtered == 2


def test_an_exploded_row_counts_once_for_each_element() -> None:
    topic = App("test").topic("t", schema="tags array<string>, at timestamp", event_time="at")
    made = aggregate(
        explode(topic, "tags", into="tag"),
        by="tag",
        window=MINUTE,
        lateness=Lateness(SECOND, SECOND),
        n=count(),
    )
    events = [
        Event(topic.topic, 1, 0, i, to_micros(NOW), None, {"tags": tags, "at": NOW})
        for i, tags in enumerate((["x", "y"], [], ["x"], None))
    ]
    found = meaning(made, events)
    assert {key[0]: len(pane.rows) for key, pane in found.panes.items()} == {"x": 2, "y": 1}
    assert found.filtered == 2


def test_windows_are_half_open() -> None:
    found = meaning(counted(MINUTE, Lateness(SECOND, SECOND)), [at(59.999999), at(60)])
    assert [to_datetime(pane.start) for pane in found.panes.values()] == [NOW, NOW + 60 * SECOND]
