"""Alerts in real time: each event is checked as soon as it is in its pane.

Spark merges an event into the state of its pane and emits the new state, so the event is the last
of the array. Records of side outputs take the same way, each in a pane of its own, and a rule of
their own emits them.
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

_SIDE = "_which"
"""The identity of a row for a side output; null for an event. State has a column of this name."""

_ARRIVED = "_arrived"
"""Arrival index within its pane."""

_PASSING = "_passing"
"""The rule that emits rows for side outputs."""


class AlertFrames:
    """The frames of alerts. `late` is the side output of late events."""

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
        """The columns of late events."""
        self.rows = self._alerts(_apart(self._set_late_aside(rows, late)), table)
        """The alerts, and the rows for side outputs."""

    def _set_late_aside(self, rows: DataFrame, outlet: Outlet | None) -> DataFrame:
        """Turn late events into rows for their side output, or drop them without one."""
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
        passing = (_PASSING, Rule(f"{_SIDE} IS NOT NULL", RECENT, None))
        each = replace(step, by=(*step.by, _SIDE), rules=(*_rules_of_events(step), passing))
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
    """Give each row for a side output its own key, and a time at which no state is evicted."""
    uncounted = F.col(metadata.BESIDE).isNotNull()
    where = (metadata.TOPIC, metadata.PARTITION, metadata.OFFSET, metadata.INDEX)
    place = [F.col(name).cast("string") for name in where if name in rows.columns]
    moment = now() + F.expr("INTERVAL 1 HOUR")
    return rows.withColumns(
        {
            _SIDE: F.when(uncounted, F.concat_ws("/", *place)),
            metadata.TIME: F.when(uncounted, moment).otherwise(F.col(metadata.TIME)),
        }
    )


def _rules_of_events(step: Alerts) -> Iterator[tuple[str, Rule]]:
    """The rules, restricted to events."""
    for name, rule in step.rules:
        yield name, replace(rule, condition=partial(_of_event, rule, step.where))


def _of_event(rule: Rule, where: Where) -> Column:
    return F.col(_SIDE).isNull() & column(rule.condition, where)
