"""Compare the rows that deduplication published with the oracle's."""

from __future__ import annotations

import headrace as hr
from headrace.clock import to_datetime
from headrace.operators.dedup.meaning import Distinct, distinct
from headrace.testing import Results
from tests.property.joining import counted, events_read, frontiers


def check_distinct(topic: str, step: hr.Deduplicated, results: Results, *, late: str) -> Distinct:
    """Check that the published rows are exactly the oracle's."""
    found = distinct(step, events_read(step, results.log), frontiers(step, results.log))
    published, meant = counted(results.topic(topic)), counted(found.rows)
    assert published == meant, (
        list((published - meant).items())[:3],
        list((meant - published).items())[:3],
    )
    if step.keep == "first":
        assert [counted([row]) for row in results.topic(topic)] == [
            counted([row]) for row in found.rows
        ], "in the order of the log"
    law = results.law(topic)
    assert law.holds
    assert law.counted == len(found.rows)
    assert (law.dead, law.late) == (len(found.dead), len(found.late))
    assert (law.duplicates, law.waiting) == (found.duplicates, found.waiting)
    expected = []
    for event, row, watermark in found.late:
        assert event.event_time is not None
        behind = (watermark - event.event_time) / 1_000_000
        expected.append({**row, "watermark": to_datetime(watermark), "late_by": behind})
    assert counted(results.topic(late)) == counted(expected)
    return found
