"""Alerts in real time: a pane that has changed comes with the very event that changed it.

Spark merges each event into the state of its pane and hands on what has become of it, so the event is
the last of the array. What is beside the events takes the same way, in panes of its own, and is told by
a rule that flags nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.engine import places
from headrace.engine.alerting import flagged, held
from headrace.engine.compile import Compiler, column
from headrace.engine.realtime.beside import as_json, record, told, written
from headrace.engine.realtime.counting import Counting
from headrace.engine.realtime.reading import now
from headrace.engine.sliding import HELD
from headrace.engine.too_late import late_columns, too_late
from headrace.streams.alerts import APPENDED, Alerts, Rule
from headrace.streams.where import Where

_WHICH = "_which"
"""Which of the rows beside the events it is; null of an event."""

_ARRIVED = "_arrived"
"""As the how-manieth row of its pane it came."""

_PASSING = "_passing"
"""The rule that tells what is beside the events."""


def alert_records(
    step: Alerts,
    compiler: Compiler,
    counting: Counting,
    topic: str,
    late: Sequence[str],
    table: DataFrame | None,
) -> DataFrame:
    """Alerts as records of a topic, with late events as records of theirs, and dead letters."""
    rows = counting.judged(compiler.rows(step.input), too_late(step.delay))
    rows = _apart(_set_aside(rows, step, late))
    by_row = replace(step, by=(*step.by, _WHICH), rules=_rules(step))
    panes = held(rows, by_row)
    in_order = F.transform(HELD, lambda row, place: row.withField(_ARRIVED, place))
    alerts = flagged(
        panes.withColumn(HELD, in_order),
        by_row,
        since=F.size(HELD) - F.lit(2),
        arrival=_ARRIVED,
        table=table,
        carried=(places.BESIDE, places.APPENDED),
    )
    alerts = alerts.withColumnRenamed(places.APPENDED, APPENDED)
    return written(alerts, record(topic, as_json(*told(alerts, step.columns))))


def _set_aside(rows: DataFrame, step: Alerts, late: Sequence[str]) -> DataFrame:
    """Rows among which those that came too late are no events any more."""
    is_late = F.col(places.BESIDE).isNull() & too_late(step.delay)
    if not late:
        return rows.where(~is_late)
    letter = as_json(*told(rows, step.input.columns), *late_columns(step.delay))
    aside = F.when(is_late, record(late[0], letter)).otherwise(F.col(places.BESIDE))
    return rows.withColumn(places.BESIDE, aside)


def _apart(rows: DataFrame) -> DataFrame:
    """Each row that is no event has a key of its own, and a time at which nothing is forgotten."""
    aside = F.col(places.BESIDE).isNotNull()
    where = (places.TOPIC, places.PARTITION, places.OFFSET, places.INDEX)
    place = [F.col(name).cast("string") for name in where if name in rows.columns]
    moment = now() + F.expr("INTERVAL 1 HOUR")
    return rows.withColumns(
        {
            _WHICH: F.when(aside, F.concat_ws("/", *place)),
            places.TIME: F.when(aside, moment).otherwise(F.col(places.TIME)),
        }
    )


def _rules(step: Alerts) -> tuple[tuple[str, Rule], ...]:
    """The rules, none of which looks at what is beside the events, and one that looks at that."""
    own = tuple(
        (name, replace(rule, condition=_of_event(rule, step.where))) for name, rule in step.rules
    )
    return (*own, (_PASSING, Rule(f"{_WHICH} IS NOT NULL", "recent", None)))


def _of_event(rule: Rule, where: Where) -> object:
    def condition() -> Column:
        return F.col(_WHICH).isNull() & column(rule.condition, where)

    return condition
