"""Compare the rankings of an application with the oracle's."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from headrace.clock import to_datetime
from headrace.operators.top.declare import Top
from headrace.operators.top.meaning import ranking
from headrace.operators.window.meaning import Pane
from headrace.testing import Results
from tests.property.judging import frontier_of, state_of, what_it_means

Row = dict[str, Any]
Place = tuple[Any, ...]


def expected_of(top: Top, results: Results) -> dict[Place, Row]:
    """The oracle's rows of a ranking by rank, as a topic has them."""
    found, _ = what_it_means(top.of, results)
    frontier = frontier_of(top.of, results)
    rows = {}
    for place, (key, pane) in ranking(top, found, frontier).items():
        row = _row(top, key, pane)
        rows[place] = {**row, "rank": place[-1], "_state": state_of(top.of, pane, frontier)}
    return rows


def _row(top: Top, key: tuple[Any, ...], pane: Pane) -> Row:
    return {
        **dict(zip(top.of.by, key, strict=False)),
        "window_start": to_datetime(pane.start),
        "window_end": to_datetime(pane.end),
        **pane.result(top.of.aggregates),
        "revision": pane.revision,
    }


def check_ranking(top: Top, view: str, results: Results, topic: str | None = None) -> None:
    """Check that the view, its changelog and its published rows are the oracle's ranking."""
    expected = expected_of(top, results)
    for rows in (results.view(view), list(_replayed(f"{results.app}.{view}.changes", results))):
        assert len(rows) == len(expected)
        for row in rows:
            _same(top, row, expected[_place(top, row)])
    if topic is not None:
        last = _last_said(top, results.topic(topic), topic)
        assert set(last) == set(expected)
        for place, row in last.items():
            _same(top, row, expected[place])


def check_fired(top: Top, results: Results, topic: str) -> None:
    """Check that the last published rows of fired windows are the oracle's ranking."""
    last = _last_said(top, results.topic(topic), topic)
    expected = {p: r for p, r in expected_of(top, results).items() if r["_state"] != "open"}
    assert all(top.live or row["pane"] != "early" for row in last.values() if "never" in topic)
    for place, row in expected.items() if not top.live else ():
        _same(top, last[place], row)


def _last_said(top: Top, rows: list[Row], topic: str) -> dict[Place, Row]:
    last: dict[Place, Row] = {}
    for row in rows:
        place = _place(top, row)
        if row["pane"] == "retracted":
            previous = last.pop(place)
            assert {**previous, "pane": ""} == {**row, "pane": ""}
        else:
            assert top.emit == "updates" or place not in last
            assert row["pane"] == "final" or top.emit == "updates"
            assert "pairs" not in topic or place not in last
            last[place] = row
    return last


def _replayed(topic: str, results: Results) -> list[Row]:
    """The result of applying the changes one by one; each `before` must be the previous row."""
    table: dict[str, Row] = {}
    for change in results.topic(topic):
        assert change["before"] == table.get(change["key"])
        assert change["before"] != change["after"]
        if change["after"] is None:
            assert change["op"] == "d"
            del table[change["key"]]
        else:
            assert change["op"] == ("u" if change["before"] else "c")
            assert json.loads(change["key"])["rank"] == change["after"]["rank"]
            table[change["key"]] = change["after"]
    return list(table.values())


def _place(top: Top, row: Row) -> Place:
    return tuple(
        _moment(row[name]) if name in ("window_start", "window_end") else row[name]
        for name in top.key
    )


def _moment(value: str | datetime) -> int:
    moment = datetime.fromisoformat(f"{value}+00:00") if isinstance(value, str) else value
    return round(moment.timestamp() * 1_000_000)


def _same(top: Top, row: Row, expected: Row) -> None:
    for name in top.columns:
        value = row[name]
        if name in ("window_start", "window_end"):
            assert _moment(value) == _moment(expected[name]), name
        elif isinstance(expected[name], Decimal):
            assert Decimal(value) == expected[name], name
        else:
            assert value == expected[name], (name, row, expected)
    assert row.get("_revision", row.get("revision")) == expected["revision"]
    assert row.get("_state", expected["_state"]) == expected["_state"]
