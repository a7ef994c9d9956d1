"""The latest windows of a view are found by the index of their ends, whatever their length."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.sqlite.recent import recent

SQL = 'CREATE VIEW v AS SELECT k, window_start, window_end FROM "_headrace_panes_s" WHERE shown = 1'

panes = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.booleans()), max_size=40)


def stored(found: list[tuple[int, int, bool]]) -> apsw.Connection:
    """A table of panes: each begins, lasts so long, and is shown or not."""
    db = apsw.Connection(":memory:")
    db.execute(
        'CREATE TABLE "_headrace_panes_s" '
        "(k INTEGER PRIMARY KEY, window_start INT, window_end INT, shown INT)"
    )
    db.execute('CREATE INDEX ends ON "_headrace_panes_s" (window_end)')
    db.executemany(
        'INSERT INTO "_headrace_panes_s" VALUES (?, ?, ?, ?)',
        [(n, start, start + length, shown) for n, (start, length, shown) in enumerate(found)],
    )
    return db


@given(panes, st.integers(1, 10))
def test_the_bound_leaves_the_rows_whose_windows_begin_last(
    found: list[tuple[int, int, bool]], limit: int
) -> None:
    db, windows = stored(found), recent("s", SQL)
    order = f"ORDER BY window_start DESC, k LIMIT {limit}"
    since = windows.since(windows.bound(db, limit))
    assert list(db.execute(f"SELECT * FROM ({since}) {order}")) == list(
        db.execute(f"SELECT * FROM ({windows.select}) {order}")
    )


@pytest.mark.parametrize("size", [200, 20_000])
def test_the_newest_rows_cost_the_same_in_a_large_view(size: int) -> None:
    db, windows = stored([(n, 5, True) for n in range(size)]), recent("s", SQL)
    rows = len(list(db.execute(windows.since(windows.bound(db, 10)))))
    assert 10 <= rows <= 20
