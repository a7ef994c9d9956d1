"""Reference semantics of patterns: a search back from each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.clock import to_datetime
from headrace.operators.pattern.matching import ENDED, STARTED
from headrace.operators.pattern.matching import Sequence as Pattern
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.meaning import Folded, Given, taken
from headrace.oracle.rows import Row


def matched(step: Stateful, found: Folded, now: int | None) -> list[Row]:
    """The matches of a pattern among the rows in `found`, up to a watermark."""
    pattern = step.function
    assert isinstance(pattern, Pattern)
    made = []
    for key, rows in taken(step, found, now):
        named = dict(zip(step.by, key, strict=True))
        made += [{**named, **match} for match in _matches(pattern, rows)]
    return made


def _matches(pattern: Pattern, rows: Sequence[Given]) -> Iterator[Row]:
    since: list[Given] = []
    for row in rows:
        since.append(row)
        chosen = _looking_back(pattern, since)
        if chosen is not None and chosen[-1].moment - chosen[0].moment <= pattern.within:
            yield _match(pattern, chosen)
            since = []


def _looking_back(pattern: Pattern, rows: Sequence[Given]) -> list[Given] | None:
    """The rows of the match that ends with the last row; of several matches, the latest."""
    wanted = [pattern.names[step] for step in pattern.places]
    chosen: list[Given] = []
    for back, row in enumerate(reversed(rows)):
        if row.row[wanted[-1 - len(chosen)]]:
            chosen.append(row)
            if len(chosen) == len(wanted):
                return chosen[::-1]
        elif pattern.strict or not back:
            return None
    return None


def _match(pattern: Pattern, rows: Sequence[Given]) -> Row:
    made = {STARTED: to_datetime(rows[0].moment), ENDED: to_datetime(rows[-1].moment)}
    first = 0
    for name, count in zip(pattern.names, pattern.times, strict=True):
        made[f"{name}_first"] = to_datetime(rows[first].moment)
        made[f"{name}_last"] = to_datetime(rows[first + count - 1].moment)
        first += count
    return made
