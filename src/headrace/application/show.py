"""Show the rows of a step over the newest part of the log, without running an application.

hr.show(per_minute, log="file:./data")

Plain Python computes them where it can, in a moment. Else Spark does, on a copy of that part.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.application.shown import Shown
from headrace.errors import InvalidSetting, UnreadableValue, Unsupported, UserError
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.log.sample import Sample, newest
from headrace.operators.registry import operator_of
from headrace.oracle.excerpt import Excerpt, excerpt_of
from headrace.oracle.expressions import BeyondOracle
from headrace.oracle.rows import Row
from headrace.pipeline.app import View
from headrace.pipeline.chains import read_directly
from headrace.pipeline.output import Output
from headrace.pipeline.stream import Late, Source, Stream, check_topic
from headrace.pipeline.time import WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shown", "show"]

ROWS = 10_000


def show(
    step: Stream | View | Output,
    n: int = 10,
    *,
    first: bool = False,
    log: str | Log | None = None,
    rows: int = ROWS,
    spark: SparkSession | None = None,
) -> Shown:
    """The last `n` rows of a step, the newest first, over the newest `rows` rows of each topic.

    With `first`, the first `n` rows of that part of the log. `log` is by default the one of the
    application that declared the topics. Nothing is stored and no application runs. Plain Python
    computes the rows if it knows all expressions of the step, else Spark does: `spark`, or this
    process's session, which is made if there is none.
    """
    return look(step, n, first=first, log=log, rows=rows, session=lambda _: spark)


def look(
    step: Stream | View | Output,
    n: int,
    *,
    first: bool,
    log: str | Log | None,
    rows: int,
    session: Callable[[str], SparkSession | None],
) -> Shown:
    """The same, with a `session` that is made when Spark is needed, and told the reason."""
    stream = step.stream if isinstance(step, View | Output) else step
    if not isinstance(stream, Stream):
        raise UserError(
            f"show() takes a stream, a view or an output, not {type(step).__name__}",
            hint="Pass what app.topic(), app.view(), app.publish() or a step such as hr.filter() "
            "returned",
        )
    for name, number in (("n", n), ("rows", rows)):
        if number < 1:
            raise InvalidSetting(f"{name} cannot be {number}", hint="Use a number from 1")
    read = inputs_of(stream)
    url = log or next((source.log for source in read if source.log), DEFAULT_LOG)
    with contextlib.ExitStack() as stack:
        there = url if isinstance(url, Log) else stack.enter_context(open_log(url, create=False))
        samples = tuple(_sample(there, source, rows) for source in read)
    try:
        found, why = by_oracle(stream, excerpt_of(samples)), ""
    except (BeyondOracle, UnreadableValue) as error:
        computed = importlib.import_module("headrace.application.show_spark").computed
        why = str(error)
        found = computed(stream, samples, session(why))
    shown = _ordered(stream, found, first=first)[:n]
    return Shown(stream.columns, shown, len(found), samples, first, why)


def inputs_of(stream: Stream) -> tuple[Source, ...]:
    """The topics that a stream is made of, and those of lookup tables, each once."""
    found = {stream.topic.name: stream} if isinstance(stream, Source) else {}
    for part in (*stream.upstream, *stream.looked_up):
        found |= {source.topic.name: source for source in inputs_of(part)}
    return tuple(found.values())


def by_oracle(stream: Stream, excerpt: Excerpt) -> list[Row]:
    """The rows of a stream in plain Python, or `BeyondOracle`."""
    step = (stream.of if isinstance(stream, Late) else stream).computed
    read = [found for part in step.upstream for found in read_directly(part)]
    if any(found.is_result for found in read):
        raise BeyondOracle("it reads the results of another step")
    if isinstance(stream, Late):
        return operator_of(stream.of).shown_late(stream.of, excerpt)
    return operator_of(stream).shown(stream, excerpt)


def _sample(log: Log, source: Source, rows: int) -> Sample:
    name = source.topic.name
    if name in log.foreign_topics([name]):
        raise Unsupported(
            f"Topic {name!r} was made by another program, and no application has run on it yet",
            hint="headrace run MODULE:APP --until-caught-up adopts it; then show() can read it",
            capability=Capability.TYPED_TOPICS.name,
        )
    found = newest(log, name, rows)
    check_topic(found.topic, source)
    return found


def _ordered(stream: Stream, rows: list[Row], *, first: bool) -> list[Row]:
    """The rows by window and key; those without a window in the order of the log."""
    if not stream.has_panes:
        return rows if first or stream.view_key is not None else rows[::-1]
    keys = [name for name in stream.view_key or () if name not in (WINDOW_START, WINDOW_END)]

    def key(row: Row) -> list[Any]:
        return [(1,) if row[name] is None else (0, row[name]) for name in keys]

    def window(row: Row) -> tuple[Any, Any]:
        return row[WINDOW_START], row[WINDOW_END]

    return sorted(sorted(rows, key=key), key=window, reverse=not first)
