"""Compare the views and topics of an application with the oracle's."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from headrace.clock import micros, to_datetime, to_micros
from headrace.log import Log
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.emission.meaning import Cut, Said, published
from headrace.operators.window.meaning import Meaning, Pane, meaning
from headrace.oracle.events import Event, events_of
from headrace.pipeline.output import Output
from headrace.pipeline.stream import sources
from headrace.plan.position import Position
from headrace.store import open_views
from headrace.testing import Results

Row = dict[str, Any]

PRIVATE = ("_revision", "_state")


def what_it_means(aggregation: Aggregation, results: Results) -> tuple[Meaning, list[Event]]:
    """The oracle's result for the rows in the log."""
    events = []
    for source in sources(aggregation):
        name = source.topic.name
        events += events_in(results.log, name)
    return meaning(aggregation, events), events


def events_in(log: Log, topic: str) -> list[Event]:
    """The events of a topic in a log."""
    records = [record for batch in log.read(topic) for record in batch.records()]
    declared = log.topic(topic).topic
    return events_of(declared, records, advances(log, topic), by_partition=log.judges_rows)


def advances(log: Log, topic: str) -> list[tuple[int, int]]:
    """The commits without rows."""
    return [
        (c.number, c.after)
        for c in log.commits(topic, 0, 100_000)
        if not c.rows and c.after is not None
    ]


def frontier_of(aggregation: Aggregation, results: Results) -> int | None:
    """The lowest frontier of the topics that an aggregation reads."""
    found = [results.log.frontier(source.topic.name) for source in sources(aggregation)]
    return min(f for f in found if f is not None) if None not in found else None


def check_view(name: str, aggregation: Aggregation, results: Results) -> Meaning:
    """Check that the rows of a view are exactly the oracle's."""
    found, _ = what_it_means(aggregation, results)
    frontier = frontier_of(aggregation, results)
    panes = found.panes if aggregation.emit == "updates" else found.final(aggregation, frontier)
    rows = {key_of(aggregation, row): row for row in results.view(name)}
    assert set(rows) == set(panes), f"the panes of {name}"
    for key, pane in panes.items():
        row = rows[key]
        same_values(aggregation, row, pane)
        assert row["_revision"] == pane.revision
        assert row["_state"] == state_of(aggregation, pane, frontier)
    return found


def state_of(aggregation: Aggregation, pane: Pane, frontier: int | None) -> str:
    """The state of a pane at a frontier: open, fired or final."""
    lateness = aggregation.lateness
    if frontier is None or frontier < pane.end + micros(lateness.delay):
        return "open"
    settled = micros(aggregation.patience) + micros(aggregation.window.settles)
    final = pane.end + settled <= frontier
    return "final" if final else "fired"


def check_late(topic: str, aggregation: Aggregation, results: Results) -> None:
    """Check that the late stream has the oracle's late rows, each with its window and watermark."""
    found, _ = what_it_means(aggregation, results)
    window, grace = aggregation.window, micros(aggregation.lateness.grace)
    expected = Counter(
        _frozen(
            {
                **row,
                "window_start": to_datetime(window.start_of(end)),
                "window_end": to_datetime(end),
                "watermark": to_datetime(watermark),
                "late_by": (watermark - grace - end) / 1_000_000,
            }
        )
        for _, row, end, watermark in found.late
    )
    assert Counter(map(_frozen, results.topic(topic))) == expected


def check_dead(app: str, step: str, aggregation: Aggregation, results: Results) -> None:
    """Check that the dead letters of a step are the oracle's, each with its position and reason."""
    found, _ = what_it_means(aggregation, results)
    expected = Counter(
        (e.topic.name, e.partition, e.offset, e.commit, reason) for e, reason in found.dead
    )
    letters = [row for row in results.topic(f"{app}.dead") if row["step"] == step]
    assert expected == Counter(
        (r["topic"], r["partition"], r["offset"], r["commit_number"], r["reason"]) for r in letters
    )


def check_published(topic: str, aggregation: Aggregation, results: Results) -> None:
    """Check that `final` panes are published once, and the last of `updates` is the oracle's."""
    found, _ = what_it_means(aggregation, results)
    rows = results.topic(topic)
    last: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = key_of(aggregation, row)
        assert key not in last or last[key]["revision"] <= row["revision"]
        if row["pane"] == "retracted":
            assert last.pop(key)["revision"] == row["revision"]
        else:
            last[key] = row
    if aggregation.emit == "final":
        assert len(last) == len(rows), "a final pane came twice"
        assert {row["pane"] for row in rows} <= {"final"}
        panes = found.final(aggregation, frontier_of(aggregation, results))
    else:
        panes = found.panes
    assert set(last) == set(panes)
    for key, pane in panes.items():
        same_values(aggregation, last[key], pane)
        assert last[key]["revision"] == pane.revision


def check_said(output: Output, step: str, results: Results) -> None:
    """Check that the oracle publishes the same panes for the same batches."""
    aggregation = output.stream
    assert isinstance(aggregation, Aggregation)
    _, events = what_it_means(aggregation, results)
    expected: dict[tuple[Any, ...], list[Said]] = {}
    for said in published(output, events, cuts_of(step, aggregation, results)):
        expected.setdefault(said.key, []).append(said)
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in results.topic(output.topic):
        found.setdefault(key_of(aggregation, row), []).append(row)
    assert set(found) == set(expected)
    for key, rows in found.items():
        panes = [(row["pane"], _moment(row["window_end"]), row["revision"]) for row in rows]
        assert panes == [(s.why, s.pane.end, s.pane.revision) for s in expected[key]], (output, key)
        for row, said in zip(rows, expected[key], strict=True):
            same_values(aggregation, row, said.pane)
    if output.retractions:
        _check_retractions(output, aggregation, results)


def _check_retractions(output: Output, aggregation: Aggregation, results: Results) -> None:
    """Check that a retraction equals the row before it, and that the last row is the oracle's."""
    have: dict[tuple[Any, ...], Row] = {}
    for row in results.topic(output.topic):
        key, values = key_of(aggregation, row), {k: v for k, v in row.items() if k != "pane"}
        if row["pane"] == "retracted":
            assert have.pop(key) == values
        else:
            assert key not in have
            have[key] = values
    found, _ = what_it_means(aggregation, results)
    frontier = frontier_of(aggregation, results)
    for key, pane in found.panes.items():
        if state_of(aggregation, pane, frontier) != "open":
            assert have[key]["revision"] == pane.revision


def cuts_of(step: str, aggregation: Aggregation, results: Results) -> list[Cut]:
    """The batches that a step has stored."""
    log, reached = results.log, f'SELECT reached FROM "{results.app}"._headrace_law WHERE step = ?'
    with open_views(log.url, app=results.app) as views:
        found = views.query(f"{reached} ORDER BY id", (step,), limit=None).rows
    cuts: list[Cut] = []
    for (text,) in found:
        commits = {topic: Position.from_json(p).commit for topic, p in json.loads(text).items()}
        frontiers = [log.frontier(topic, commit) for topic, commit in commits.items()]
        moments = [moment for moment in frontiers if moment is not None]
        frontier = min(moments) if len(moments) == len(frontiers) else None
        cuts.append(Cut(commits, frontier, log.commit_time(max(commits.values()))))
    return cuts


def check_changelog(topic: str, aggregation: Aggregation, results: Results, name: str) -> None:
    """Check that the changes add up to the view, and that each `before` is the previous row."""
    table: dict[str, Row] = {}
    for change in results.topic(topic):
        assert change["before"] == table.get(change["key"])
        if change["after"] is None:
            assert change["op"] == "d"
            del table[change["key"]]
        else:
            assert change["op"] == ("u" if change["before"] else "c")
            table[change["key"]] = change["after"]
    by_key = {key_of(aggregation, row): row for row in table.values()}
    view = {key_of(aggregation, row): row for row in results.view(name)}
    assert set(by_key) == set(view)
    assert all(by_key[key]["revision"] == view[key]["_revision"] for key in view)


def check_law(step: str, aggregation: Aggregation, results: Results) -> None:
    """Check that the law's terms are the oracle's counts."""
    found, _ = what_it_means(aggregation, results)
    law = results.law(step)
    assert law.holds
    assert law.rows == found.rows_in + law.tombstones
    assert law.dead == len(found.dead)
    assert law.late == len(found.late)
    assert law.counted == found.counted
    assert law.pairs == found.pairs


def same_values(aggregation: Aggregation, row: Row, pane: Pane) -> None:
    kinds = dict(aggregation.aggregates)
    for name, expected in pane.result(aggregation.aggregates).items():
        value = row[name]
        match kinds[name].kind:
            case "average":
                assert value == expected or math.isclose(value, expected), name
            case "approx_distinct":
                assert abs(value - expected) <= 1, name
            case "approx_top":
                # A view shows it as text.
                assert (json.loads(value) if isinstance(value, str) else value) == expected, name
            case _:
                if isinstance(expected, Decimal):
                    value = Decimal(value)  # a view shows it as text
                assert value == expected, (name, value, expected)


def key_of(aggregation: Aggregation, row: Row) -> tuple[Any, ...]:
    window = (_moment(row[name]) for name in aggregation.window.key)
    return (*(row[name] for name in aggregation.by), *window)


def _moment(value: str | datetime) -> int:
    """A time from a view or a topic, in microseconds."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value).replace(tzinfo=UTC)
    return to_micros(value)


def _frozen(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(row.items())
    )
