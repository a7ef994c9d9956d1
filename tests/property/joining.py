"""Compare the published rows of a join with the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import headrace as hr
from headrace.clock import to_datetime, to_micros
from headrace.log import Log
from headrace.operators.stream_join.meaning import Joined, joined
from headrace.oracle.events import Event
from headrace.pipeline.stream import Stream, sources
from headrace.testing import Results
from tests.property.judging import events_in

Row = dict[str, Any]


def events_read(stream: Stream, log: Log) -> list[Event]:
    """All events of the topics that a stream reads."""
    events = []
    for source in sources(stream):
        events += events_in(log, source.topic.name)
    return events


def frontiers(stream: Stream, log: Log) -> dict[str, int | None]:
    return {source.topic.name: log.frontier(source.topic.name) for source in sources(stream)}


def check_join(topic: str, join: hr.Join, results: Results, *, late: str) -> Joined:
    """Check that the published rows are exactly the oracle's."""
    found = joined(join, events_read(join, results.log), frontiers(join, results.log))
    published, meant = counted(results.topic(topic)), counted(found.rows)
    assert published == meant, (
        list((published - meant).items())[:3],
        list((meant - published).items())[:3],
    )
    law = results.law(topic)
    assert law.holds
    assert (law.rows, law.dead, law.late) == (found.rows_in, len(found.dead), len(found.late))
    assert law.counted == found.counted
    sides = {"left": join.left.columns, "right": join.right.columns}
    names = {"left": dict(zip(join.left.columns, join.left.columns, strict=True))}
    names["right"] = {theirs: mine for mine, theirs in join.on} | dict(join.from_right)
    blank = dict.fromkeys(join.late.columns)
    expected = []
    for side, row in found.late:
        assert row.watermark is not None
        mine = {names[side][name]: row.row[name] for name in sides[side]}
        expected.append(
            {
                **blank,
                **mine,
                "side": side,
                "watermark": to_datetime(row.watermark),
                "late_by": (row.watermark - row.moment) / 1_000_000,
            }
        )
    assert counted(results.topic(late)) == counted(expected)
    return found


def counted(rows: list[Row]) -> Counter[str]:
    """Multiset of rows, regardless of column order."""
    return Counter(repr([(name, _plain(row[name])) for name in sorted(row)]) for row in rows)


def _plain(value: Any) -> Any:
    """A row with times in UTC, since a moment is the same in every time zone."""
    return to_micros(value) if isinstance(value, datetime) else value
