"""Overlapping sessions merge, and open ones are kept as long as a row can join them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.window.sessions import GROUP, grouped
from headrace.operators.window.state import OpenSessions
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.steps import steps_of
from headrace.store.sqlite.database import Database

MINUTE = timedelta(minutes=1)
MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("k", pa.string()), (WINDOW_START, MOMENT), (WINDOW_END, MOMENT)])

KEYS = st.none() | st.sampled_from(["a", "b"])
ROWS = st.lists(st.tuples(KEYS, KEYS, st.integers(0, 30), st.integers(1, 9)), max_size=20)


@given(ROWS)
def test_sessions_of_a_key_that_overlap_are_one_group(
    rows: list[tuple[str | None, str | None, int, int]],
) -> None:
    groups: list[set[int]] = []
    for number, (*key, start, length) in enumerate(rows):
        near = [
            group
            for group in groups
            for other in group
            if [*rows[other][:2]] == key
            and rows[other][2] < start + length
            and start < rows[other][2] + rows[other][3]
        ]
        groups = [group for group in groups if group not in near] + [{number}.union(*near)]
    times = [pa.array([row[2] + more * row[3] for row in rows], MOMENT) for more in (0, 1)]
    keys = [pa.array([row[part] for row in rows], pa.string()) for part in (0, 1)]
    sessions = pa.table([*keys, *times], names=["k", "l", WINDOW_START, WINDOW_END])
    found: dict[int, set[int]] = {}
    for number, group in enumerate(grouped(sessions, ("k", "l")).column(GROUP).to_pylist()):
        found.setdefault(group, set()).add(number)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, groups))


def sessions(*rows: tuple[str | None, int, int]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 3
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def spans(rows: pa.Table) -> list[tuple[int, int]]:
    times = (rows.column(name).cast(pa.int64()).to_pylist() for name in (WINDOW_START, WINDOW_END))
    return sorted(zip(*times, strict=True))


@pytest.fixture
def held(tmp_path: Path) -> OpenSessions:
    app = hr.App("shop")
    source = app.topic("visits", schema="k string, at timestamp", event_time="at")
    lateness = hr.Lateness(MINUTE, MINUTE)
    counts = hr.aggregate(
        source, by="k", window=hr.session(MINUTE), lateness=lateness, n=hr.count()
    )
    app.view("visits", counts)
    (step,) = steps_of(app)
    return OpenSessions(step, SCHEMA)


@pytest.fixture
def db(held: OpenSessions, tmp_path: Path) -> Iterator[apsw.Connection]:
    """Three open sessions, one of them without a key."""
    database = Database(tmp_path / "shop.db", "shop")
    with database.writing() as db:
        held.create(db)
        held.replace(db, sessions(), sessions(("a", 0, 10), ("a", 20, 30), (None, 0, 10)))
        yield db
    database.close()


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (("a", 10, 20), []),
        (("a", 9, 20), [(0, 10)]),
        (("a", 10, 21), [(20, 30)]),
        (("a", 9, 21), [(0, 10), (20, 30)]),
        ((None, 5, 25), [(0, 10)]),
        (("b", 0, 30), []),
    ],
)
def test_open_sessions_are_found_by_what_overlaps_them(
    db: apsw.Connection,
    held: OpenSessions,
    session: tuple[str | None, int, int],
    found: list[tuple[int, int]],
) -> None:
    assert spans(held.overlapping(db, sessions(session))) == found


def test_sessions_take_the_place_of_those_they_are_made_of(
    db: apsw.Connection, held: OpenSessions
) -> None:
    held.replace(db, sessions(("a", 0, 10), ("a", 20, 30)), sessions(("a", 0, 30)))
    assert spans(held.overlapping(db, sessions(("a", 0, 99), (None, 0, 99)))) == [(0, 10), (0, 30)]


@pytest.mark.parametrize(("closed", "left"), [(None, 3), (9, 3), (10, 1), (30, 0)])
def test_sessions_that_ended_by_the_time_that_is_closed_are_not_held(
    db: apsw.Connection, held: OpenSessions, closed: int | None, left: int
) -> None:
    held.forget(db, closed)
    every = sessions(("a", 0, 99), (None, 0, 99))
    assert len(spans(held.overlapping(db, every))) == left
