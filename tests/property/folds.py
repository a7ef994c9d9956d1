"""Stateful functions as users write them: each is a fold over the rows of a key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

GAP = timedelta(seconds=30)

TOTALS_STATE = "total bigint, rows bigint, last timestamp"
TOTALS = "k string, n int, total bigint, rows bigint, since double, at timestamp"

VISITS_STATE = "rows bigint, began timestamp, timer timestamp"
VISITS = "k string, rows bigint, began timestamp, ended timestamp"

Row = dict[str, Any]


def by_key(table: pa.Table, *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of each key."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def totals(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return a row for each event, with its key's total and the seconds since its last event."""
    known = {row["k"]: row for row in state.to_pylist()}
    made = []
    for event in events.to_pylist():
        key = event["k"]
        before = known.get(key, {"k": key, "total": 0, "rows": 0, "last": None})
        after = {
            "k": key,
            "total": before["total"] + (event["n"] or 0),
            "rows": before["rows"] + 1,
            "last": event["at"],
        }
        since = None if before["last"] is None else event["at"] - before["last"]
        known[key] = after
        made.append(
            {
                **{name: after[name] for name in ("k", "total", "rows")},
                "n": event["n"],
                "since": None if since is None else since.total_seconds(),
                "at": event["at"],
            }
        )
    columns = ("k", "total", "rows", "last")
    return table_of(list(known.values()), state, columns), rows_of(made, TOTALS_TYPES)


def visits(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return a row for each run of events less than GAP apart, when it is over."""
    known = {row["k"]: row for row in state.to_pylist()}
    mine = by_key(events, "k")
    made: list[Row] = []
    for key in {**known, **{key: None for (key,) in mine}}:
        run = known.pop(key, None)
        rows = mine.get((key,), [])
        for row in rows:
            if run is not None and run["timer"] is not None and run["timer"] <= row["at"]:
                made.append(_over(run))
                run = None
            run = run or {"k": key, "rows": 0, "began": row["at"]}
            run = {**run, "rows": run["rows"] + 1, "timer": row["at"] + GAP}
        if run is not None and not rows:
            made.append(_over(run))
            run = None
        if run is not None:
            known[key] = run
    return table_of(list(known.values()), state, state.column_names), rows_of(made, VISITS_TYPES)


def reminders(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return a row whenever a key has had no event for GAP. A fired timer stays as it is."""
    known = {row["k"]: row for row in state.to_pylist()}
    mine = by_key(events, "k")
    made: list[Row] = []
    for key in {**known, **{key: None for (key,) in mine}}:
        run, rows = known.get(key), mine.get((key,), [])
        for row in rows:
            if run is not None and run["timer"] is not None and run["timer"] <= row["at"]:
                made.append(_over(run))
            run = run or {"k": key, "rows": 0, "began": row["at"]}
            run = {**run, "rows": run["rows"] + 1, "timer": row["at"] + GAP}
        assert run is not None
        if not rows:
            made.append(_over(run))
        known[key] = run
    return table_of(list(known.values()), state, state.column_names), rows_of(made, VISITS_TYPES)


def _over(run: Row) -> Row:
    return {"k": run["k"], "rows": run["rows"], "began": run["began"], "ended": run["timer"]}


MOMENT = pa.timestamp("us", tz="UTC")
TOTALS_TYPES = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("total", pa.int64()),
        ("rows", pa.int64()),
        ("since", pa.float64()),
        ("at", MOMENT),
    ]
)
VISITS_TYPES = pa.schema(
    [("k", pa.string()), ("rows", pa.int64()), ("began", MOMENT), ("ended", MOMENT)]
)


def table_of(rows: list[Row], like: pa.Table, names: Any) -> pa.Table:
    """Rows with the columns of another table."""
    return pa.Table.from_pylist([{n: row[n] for n in names} for row in rows], like.schema)


def rows_of(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)
