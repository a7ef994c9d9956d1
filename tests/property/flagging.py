"""Compare the published alerts with the oracle's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import headrace as hr
from headrace.clock import to_datetime
from headrace.operators.alerts.meaning import Flagged, Judge, Seen, Verdict, flagged
from headrace.testing import Results
from tests.property.joining import counted, events_read

RULES: dict[str, hr.Rule] = {
    "many": hr.rule("size(recent) > 2", value="size(recent)"),
    "rising": hr.rule("try_element_at(recent, -2).n < n", evidence="slice(recent, -2, 2)"),
    "sum": hr.rule(
        "aggregate(recent, 0L, (sum, r) -> sum + coalesce(r.n, 0)) >= 5",
        evidence="filter(recent, r -> r.n > 0)",
    ),
    "near": hr.rule(
        "size(filter(recent, r -> r.at >= at - INTERVAL 5 SECONDS)) > 1",
        evidence="filter(recent, r -> r.at >= at - INTERVAL 5 SECONDS)",
        value="n",
    ),
}
"""Rules that a late event can only make true, and rules that it can also make false."""


def _many(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
    return Verdict(recent, float(len(recent))) if len(recent) > 2 else None


def _rising(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
    before = recent[-2].row["n"] if len(recent) > 1 else None
    now = seen.row["n"]
    rises = before is not None and now is not None and before < now
    return Verdict(recent[-2:]) if rises else None


def _sum(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
    total = sum(one.row["n"] or 0 for one in recent)
    return Verdict([one for one in recent if (one.row["n"] or 0) > 0]) if total >= 5 else None


def _near(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
    near = [one for one in recent if one.moment >= seen.moment - 5_000_000]
    n = seen.row["n"]
    return Verdict(near, None if n is None else float(n)) if len(near) > 1 else None


JUDGES: dict[str, Judge] = {"many": _many, "rising": _rising, "sum": _sum, "near": _near}
"""The same rules in Python."""


def check_alerts(
    topic: str, step: hr.Alerts, judges: Mapping[str, Judge], results: Results, *, late: str
) -> Flagged:
    """Check that the alerts are exactly the oracle's, in its order."""
    events = events_read(step, results.log)
    if results.log.judges_rows:  # an alert has the time of the commit that its event is in
        moment = results.log.commit_time
        events = [replace(event, append_time=moment(event.commit)) for event in events]
    found = flagged(step, events, judges)
    published = results.topic(topic)
    assert [counted([row]) for row in published] == [counted([row]) for row in found.alerts]
    law = results.law(topic)
    assert law.holds
    assert (law.rows, law.dead, law.late) == (found.rows_in, len(found.dead), len(found.late))
    assert law.counted == found.counted
    expected = []
    for event, row, watermark in found.late:
        assert event.event_time is not None
        behind = (watermark - event.event_time) / 1_000_000
        expected.append({**row, "watermark": to_datetime(watermark), "late_by": behind})
    assert counted(results.topic(late)) == counted(expected)
    return found
