"""Duplicate events, which a producer has sent again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.application.doctor.finding import Finding, percent, printable
from headrace.clock import SECOND
from headrace.log.dead_letter import row_text
from headrace.log.event_time import times_of
from headrace.log.sample import Sample, hashable
from headrace.schema.python_rows import to_rows
from headrace.wording import many

_COMMIT = "_commit"
_EXAMPLES = 3
_SHARE, _COARSE_SHARE = 0.002, 0.1
"""Shares of rows that are no accident: in general, and if times are whole seconds."""


@dataclass(frozen=True)
class Example:
    """A duplicate event, its number of occurrences, and its first and last commit."""

    row: str
    times: int
    first: int
    last: int


@dataclass(frozen=True)
class Duplicates(Finding):
    """The `events` of a topic that later commits repeat, and the number of `copies`."""

    name = "duplicates"
    events: int
    copies: int
    rows: int
    looked_at: str
    examples: tuple[Example, ...]
    steps: tuple[str, ...]
    """The steps that count them more than once."""

    @property
    def what(self) -> str:
        return (
            f"{many(self.events, 'event')} occurred more than once, so "
            f"{', '.join(self.steps)} counts {many(self.copies, 'row')} too many"
        )

    @property
    def evidence(self) -> tuple[str, ...]:
        share = percent(self.copies / self.rows)
        return (
            f"{self.copies:,} rows ({share} of {self.looked_at}) are equal to an earlier one in "
            "every column, including the event time",
            *(
                f"{many(e.times, 'time')}, first in commit {e.first}, last in {e.last}: {e.row}"
                for e in self.examples
            ),
        )

    @property
    def remedy(self) -> str:
        return (
            "Give the producer an id, log.producer(id=...), and each append a sequence number: the "
            "log then drops repeated appends. If that is not possible, give each event an id and "
            "count distinct ids"
        )


def duplicates(sample: Sample, steps: Sequence[str]) -> Duplicates | None:
    """Find rows of a topic that a later commit repeats, equal in every column.

    Equal keys are no duplicates, nor are repeated appends that the log has dropped.
    """
    table = sample.table()
    if sample.topic.event_time is None or not table.num_rows:
        return None
    table = table.filter(pc.is_valid(times_of(sample.topic, table)))
    columns = [name for name in table.column_names if name != _COMMIT]
    groups = (
        hashable(table)
        .group_by(columns)
        .aggregate([(_COMMIT, "min"), (_COMMIT, "max"), (_COMMIT, "count_distinct")])
    )
    times = groups.column(f"{_COMMIT}_count_distinct")
    again = groups.filter(pc.greater(times, 1))
    copies = (pc.sum(again.column(f"{_COMMIT}_count_distinct")).as_py() or 0) - again.num_rows
    if copies <= max(1, _tolerated(times_of(sample.topic, table)) * table.num_rows):
        return None
    worst = again.sort_by(
        [(f"{_COMMIT}_count_distinct", "descending"), (f"{_COMMIT}_min", "ascending")]
    )
    examples = tuple(
        Example(
            printable(row_text({name: row[name] for name in columns})),
            row[f"{_COMMIT}_count_distinct"],
            row[f"{_COMMIT}_min"],
            row[f"{_COMMIT}_max"],
        )
        for row in to_rows(worst.slice(0, _EXAMPLES))
    )
    return Duplicates(
        sample.topic.name,
        again.num_rows,
        copies,
        table.num_rows,
        sample.text,
        examples,
        tuple(steps),
    )


def _tolerated(times: pa.Array) -> float:
    """The tolerated share: distinct events may be equal if times are whole seconds."""
    moments = times.cast(pa.int64())
    whole = pc.equal(pc.multiply(pc.divide(moments, SECOND), SECOND), moments)
    return _COARSE_SHARE if pc.all(whole).as_py() else _SHARE
