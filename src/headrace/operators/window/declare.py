"""Windowed aggregation, as a user declares it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.grouping_sets import By, grouped
from headrace.operators.window.windows import FOREVER, AnyWindow, Session, Sliding
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable, topics_read
from headrace.pipeline.expressions import check_columns, columns_in, names_column
from headrace.pipeline.output import Output, check_panes
from headrace.pipeline.row_steps import check_new_names
from headrace.pipeline.stream import (
    OF_LATE,
    Late,
    Stream,
    Text,
    Unary,
    Wanted,
)
from headrace.pipeline.time import WINDOW_END, WINDOW_START, Lateness, warn_of_arrival
from headrace.pipeline.types import check_types, is_number, type_of
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_type

Emit = Literal["updates", "final"]


@dataclass(frozen=True)
class Aggregation(Unary):
    """Rows counted by key and window. `late` is the stream of rows that were too late."""

    by: tuple[str, ...]
    window: AnyWindow
    lateness: Lateness
    emit: Emit
    aggregates: tuple[tuple[str, Aggregate], ...]
    noun = "an aggregation"
    example = "hr.aggregate(...)"
    is_result = True
    has_panes = True

    @property
    def view_key(self) -> tuple[str, ...]:
        return (*self.by, *self.window.key)

    @property
    def settled(self) -> Aggregation:
        return self if self.emit == "final" else replace(self, emit="final")

    @property
    def holds_back(self) -> timedelta:
        return self.patience + self.window.settles

    @property
    def unreadable(self) -> tuple[str, str] | None:
        if self.window.length < FOREVER:
            return None
        return (
            "its totals go on for ever, so none is final, and each change would count again",
            "Use running(expiry) with the time after which a key is closed, or a window",
        )

    @property
    def time(self) -> str:
        """The last moment of the window: in order of these, windows become final."""
        ends_within = isinstance(self.window, Sliding)
        return WINDOW_END if ends_within else f"{WINDOW_END} - INTERVAL 1 MICROSECOND"

    @property
    def watermark_delay(self) -> timedelta:
        return self.lateness.delay

    @property
    def in_order(self) -> bool:
        return any(made.kind in ("first", "last") for _, made in self.aggregates)

    @property
    def has_spark_state(self) -> bool:
        return not isinstance(self.window, Session)

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.by

    @property
    def patience(self) -> timedelta:
        """The time after its window's end in which a row still counts."""
        return self.lateness.delay + self.lateness.grace

    @property
    def late(self) -> Late:
        """The rows that were too late, with their window, watermark and lateness."""
        extra = (WINDOW_START, WINDOW_END, *OF_LATE)
        return Late((*self.input.columns, *extra), self.where, self)

    def output_time(self, columns: Sequence[str]) -> str:
        return WINDOW_START

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        needed = {*self.by}
        for _, made in self.aggregates:
            needed |= columns_in(made.of, self.where) if made.of is not None else set()
        yield self.input, needed

    def uses(self, column: str) -> list[str]:
        by = ["rows are grouped by it"] * (column in self.by)
        made = [
            f"{name} is computed from it"
            for name, made in self.aggregates
            if names_column(made.of, column, self.where)
        ]
        return [*self.input.uses(column), *by, *made]

    def definition(self, text: Text) -> dict[str, Any]:
        return {
            "by": self.by,
            "window": self.window.definition,
            "lateness": [micros(self.lateness.delay), micros(self.lateness.grace)],
            "emit": self.emit,
            "aggregates": [[name, *made.definition] for name, made in self.aggregates],
            "of": self.input.definition(text),
        }

    def check_output(self, output: Output) -> None:
        check_panes(output, self.columns, self.emit)
        if isinstance(output.early, int) and not self.window.is_shared:
            raise InvalidPipeline(
                f"A sliding window cannot wait for {output.early} rows: there is one for every "
                "event",
                hint=f"Use 'batch', 'never' or a timedelta. See {output.where}",
            )


@declaration
def aggregate(
    stream: Stream,
    *,
    by: By,
    window: AnyWindow,
    lateness: Lateness,
    emit: Emit = "updates",
    **aggregates: Aggregate,
) -> Aggregation:
    """The rows of a stream, aggregated by key and window of event time.

    `emit` selects what readers see: `updates`, each with a revision, from the first row of a window
    on, or the `final` result once, when nothing can change it any more. With `rollup`, `cube` or
    `grouping_sets` in `by`, the key has the column `grouping_id` too.
    """
    where = caller()
    stream, keys = grouped(stream, by, aggregates, where)
    if keys:
        warn_of_arrival([source.topic for source in topics_read(stream)], keys, where)
    if not aggregates:
        raise InvalidPipeline(
            "An aggregation needs an aggregate", hint=f"Write hits=hr.count(). See {where}"
        )
    check_readable(stream, where)
    for key in keys:
        if key not in stream.columns:
            check_columns(f"`{key}`", stream.columns, where)
    for name, made in aggregates.items():
        _check_aggregate(name, made, stream, where)
    names = (*keys, WINDOW_START, WINDOW_END, *aggregates)
    check_new_names(list(aggregates), where)
    if len(set(names)) != len(names):
        raise InvalidPipeline(
            f"Two columns have the same name: {', '.join(names)}", hint=str(where)
        )
    return Aggregation(
        names, where, stream, keys, window, lateness, emit, tuple(aggregates.items())
    )


_OF_NUMBERS = ("sum", "average", "quantile")


def _check_aggregate(name: str, made: Aggregate, stream: Stream, where: Where) -> None:
    if made.of is None:
        return
    check_columns(made.of, stream.columns, where)
    check_types(made.of, stream.type_of, where)
    kind = type_of(made.of, stream.type_of, where)
    if made.kind in _OF_NUMBERS and kind is not None and not is_number(kind):
        raise InvalidPipeline(
            f"{name} is the {made.kind} of {made.of!r}, which is {format_type(kind)}, not a number",
            hint=f"Aggregate a column of numbers, or cast it: CAST({made.of} AS double). "
            f"See {where}",
        )
