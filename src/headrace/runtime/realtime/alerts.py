"""Alerts in real time: a pane that has changed comes with the very event that changed it.

Spark merges each event into the state of its pane and hands on what has become of it, so the event
is the last of the array. What is beside the events takes the same way, in panes of its own, and is
told by a rule that flags nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.operators.alerts.declare import APPENDED, RECENT, Alerts, Rule
from headrace.operators.alerts.spark import flagged, held
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.compile import Compiler, column
from headrace.plan.late_rows import late_columns, late_rows, too_late
from headrace.plan.panes import HELD
from headrace.runtime.realtime.counting import Counting
from headrace.runtime.realtime.outlets import Outlet
from headrace.runtime.realtime.reading import now

_WHICH = "_which"
"""Which of the rows beside the events it is; null of an event."""

_ARRIVED = "_arrived"
"""As the how-manieth row of its pane it came."""

_PASSING = "_passing"
"""The rule that tells what is beside the events."""


class AlertFrames:
    """The frames of alerts, made by a compiler. `late` is where what comes too late goes."""

    def __init__(
        self,
        step: Alerts,
        compiler: Compiler,
        counting: Counting,
        late: Outlet | None,
        table: DataFrame | None,
    ) -> None:
        self._step = step
        self._shift = compiler.shift
        rows = counting.judged(compiler.rows(step.input), too_late(step.delay))
        self.late_schema = arrow_schema(late_rows(rows, step.input.columns, step.delay))
        """The columns of the events that came too late."""
        self.rows = self._alerts(_apart(self._find_uncounted(rows, late)), table)
        """The alerts, and what is beside them."""

    def _find_uncounted(self, rows: DataFrame, outlet: Outlet | None) -> DataFrame:
        """Rows among which those that came too late are no events any more."""
        step = self._step
        is_late = F.col(metadata.BESIDE).isNull() & too_late(step.delay)
        if outlet is None:
            return rows.where(~is_late)
        own = [F.col(f"`{name}`") for name in step.input.columns]
        late = outlet.record(self.late_schema, [*own, *late_columns(step.delay)])
        uncounted = F.when(is_late, late).otherwise(F.col(metadata.BESIDE))
        return rows.withColumn(metadata.BESIDE, uncounted)

    def _alerts(self, rows: DataFrame, table: DataFrame | None) -> DataFrame:
        step = self._step
        passing = (_PASSING, Rule(f"{_WHICH} IS NOT NULL", RECENT, None))
        each = replace(step, by=(*step.by, _WHICH), rules=(*_rules_of_events(step), passing))
        in_order = F.transform(HELD, lambda row, place: row.withField(_ARRIVED, place))
        alerts = flagged(
            held(rows, each, self._shift).withColumn(HELD, in_order),
            each,
            since=F.size(HELD) - F.lit(2),
            arrival=_ARRIVED,
            table=table,
            carried=(metadata.BESIDE, metadata.APPENDED),
        )
        return alerts.withColumnRenamed(metadata.APPENDED, APPENDED)


def _apart(rows: DataFrame) -> DataFrame:
    """Each row that is no event has a key of its own, and a time at which nothing is forgotten."""
    uncounted = F.col(metadata.BESIDE).isNotNull()
    where = (metadata.TOPIC, metadata.PARTITION, metadata.OFFSET, metadata.INDEX)
    place = [F.col(name).cast("string") for name in where if name in rows.columns]
    moment = now() + F.expr("INTERVAL 1 HOUR")
    return rows.withColumns(
        {
            _WHICH: F.when(uncounted, F.concat_ws("/", *place)),
            metadata.TIME: F.when(uncounted, moment).otherwise(F.col(metadata.TIME)),
        }
    )


def _rules_of_events(step: Alerts) -> Iterator[tuple[str, Rule]]:
    """The rules, none of which looks at what is beside the events."""
    for name, rule in step.rules:
        yield name, replace(rule, condition=partial(_of_event, rule, step.where))


def _of_event(rule: Rule, where: Where) -> Column:
    return F.col(_WHICH).isNull() & column(rule.condition, where)
