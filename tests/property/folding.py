"""Compare the published rows of a stateful step with the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.operators.stateful.meaning import Folded, folded, late_row
from headrace.testing import Results
from tests.property.joining import events_read, frontiers

Row = dict[str, Any]


def check_stateful(
    topic: str, step: hr.Stateful, results: Results, columns: pa.Schema, *, late: str
) -> Folded:
    """Check that the published rows are exactly the oracle's."""
    log = results.log
    found = folded(step, events_read(step, log), frontiers(step, log), columns)
    assert counted(results.topic(topic)) == counted(found.rows)
    assert counted(results.topic(late)) == counted([late_row(given) for given in found.late])
    law = results.law(topic)
    assert law.holds
    assert law.rows == found.rows_in
    assert law.late == len(found.late)
    assert law.dead == len(found.dead) + len(found.failed)
    assert law.counted == found.taken - len(found.failed)
    return found


def counted(rows: list[Row]) -> Counter[str]:
    """Multiset of rows, regardless of column order and time zone names."""
    return Counter(
        repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows
    )


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
