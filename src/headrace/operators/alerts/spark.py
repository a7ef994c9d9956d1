"""The plan of alerts, in Spark's own functions.

Spark's state holds the events of each key in overlapping panes, as for sliding windows: one pane
holds everything that a rule may see of an event. The alerts of a changed pane are a function of
that pane alone, without window functions and without Python, so batches and real time agree.

An event is evaluated on arrival, and again with each later commit that adds an event to its recent
past. Each of these turns sees the log up to its commit and no more. So it makes no difference which
commits are in one batch.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.log import Log
from headrace.operators.alerts.declare import (
    ALERT,
    AT,
    CUT,
    EVIDENCE,
    RECENT,
    RULE,
    SINCE,
    VALUE,
    Alerts,
    Rule,
)
from headrace.pipeline.row_steps import splits
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema, frame_of
from headrace.plan.batch import Rows, Shapes, Sink
from headrace.plan.compile import Compiler, checked, column
from headrace.plan.counters import counted
from headrace.plan.late_rows import late_rows, too_late
from headrace.plan.lateness import Closing
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import beginning, position_at
from headrace.plan.range_read import RangeRead
from headrace.plan.table_changes import ORDER, TOMBSTONE, change_rows
from headrace.plan.watermark import HELD, PANE, hold

TURN = "_turn"
"""The arrival that causes an evaluation: that of the event, or of one earlier in event time."""

_SORTED, _NEW, _EVENT, _PLACE = "_sorted", "_new", "_event", "_place"
_CUT, _FLAGGED = "_cut", "_flagged"


def held(rows: DataFrame, step: Alerts, shift: int) -> DataFrame:
    """The changed panes, in Spark's update mode, with their events.

    `rows` have the columns of the step's input, TIME, and a column that orders arrivals.
    """
    first = [name for name in metadata.ORDER if name in rows.columns]
    rest = [name for name in rows.columns if name not in first]
    # With these columns first, arrays of events sort in event-time and log order.
    in_order = rows.select(*first, *(F.col(f"`{name}`") for name in rest))
    return hold(in_order, step.by, step.within, shift)


def flagged(
    panes: DataFrame,
    step: Alerts,
    *,
    since: Column,
    arrival: str = metadata.COMMIT,
    table: DataFrame | None = None,
    carried: tuple[str, ...] = (),
) -> DataFrame:
    """The alerts of held panes, for all turns after `since`.

    `arrival` is the column that grows as events arrive. `since` is an expression over a pane, and
    turns up to it are done. An alert may occur in several turns, and the first one counts. `table`
    is the lookup table. `carried` are position columns of the event that go into the result.
    """
    turns = checked(step.where, _turns, panes, step, since, arrival)
    events = checked(step.where, _recent, turns, step, arrival)
    own = events.select(
        *(F.col(f"`{key}`") for key in step.by),
        *(F.col(f"{_EVENT}.`{name}`") for name in step.input.columns if name not in step.by),
        *(F.col(name) for name in (RECENT, _CUT, TURN, _EVENT)),
    )
    return _alerts(_looked_up(own, step, table), step, carried)


def _turns(panes: DataFrame, step: Alerts, since: Column, arrival: str) -> DataFrame:
    """A row for each turn: the index of the event in its pane, and the arrival of the turn."""
    within = micros(step.within)
    began = F.unix_micros(PANE) - F.lit(within)
    moment = f"unix_micros({{}}.{metadata.TIME})"
    new = F.expr(
        f"filter(transform({_SORTED}, (r, i) -> struct(i AS place, {moment.format('r')} AS moment, "
        f"r.{arrival} AS arrival)), r -> r.arrival > _since)"
    )
    # In the recent past of the event, and arrived with it or after it.
    touching = (
        f"filter({_NEW}, r -> r.place <= i AND r.arrival >= e.{arrival} "
        f"AND r.moment >= {moment.format('e')} - {within})"
    )
    turns = F.expr(
        f"flatten(transform({_SORTED}, (e, i) -> IF({moment.format('e')} >= _began, transform("
        f"array_distinct(transform({touching}, r -> r.arrival)), t -> struct(i AS {_PLACE}, "
        f"t AS {TURN})), array())))"
    )
    keys = [F.col(f"`{key}`") for key in step.by]
    return (
        panes.select(
            *keys, F.array_sort(HELD).alias(_SORTED), since.alias("_since"), began.alias("_began")
        )
        .withColumn(_NEW, new)
        .select(*keys, _SORTED, F.inline(turns))
    )


def _recent(turns: DataFrame, step: Alerts, arrival: str) -> DataFrame:
    """The event of each turn, with its recent past as of the turn."""
    keys = [F.col(f"`{key}`") for key in step.by]
    events = turns.withColumn(_EVENT, F.expr(f"{_SORTED}[{_PLACE}]"))
    since = f"unix_micros({_EVENT}.{metadata.TIME}) - {micros(step.within)}"
    past = F.expr(
        f"filter(slice({_SORTED}, 1, {_PLACE} + 1), "
        f"r -> unix_micros(r.{metadata.TIME}) >= {since} AND r.{arrival} <= {TURN})"
    )
    seen = events.select(*keys, _EVENT, TURN, past.alias(RECENT))
    newest = F.expr(
        f"slice({RECENT}, greatest(size({RECENT}) - {step.limit}, 0) + 1, {step.limit})"
    )
    return seen.select(
        *keys, _EVENT, TURN, newest.alias(RECENT), (F.size(RECENT) > step.limit).alias(_CUT)
    )


def _looked_up(events: DataFrame, step: Alerts, table: DataFrame | None) -> DataFrame:
    """Events with their table columns, or nulls."""
    if step.known is None:
        return events
    assert table is not None
    renamed = table.select(
        *(F.col(f"`{theirs}`").alias(f"_{theirs}") for _, theirs in step.known.on),
        *(F.col(f"`{name}`").alias(made) for name, made in step.known.from_table),
    )
    keys = [F.col(f"_{theirs}") for _, theirs in step.known.on]
    same = [F.col(f"`{mine}`") == key for (mine, _), key in zip(step.known.on, keys, strict=True)]
    return events.join(F.broadcast(renamed), same, "left").drop(
        *(f"_{t}" for _, t in step.known.on)
    )


def _alerts(events: DataFrame, step: Alerts, carried: tuple[str, ...]) -> DataFrame:
    """A row for each rule that flags an event."""
    rules = [_flag(name, rule, step) for name, rule in step.rules]
    found = checked(step.where, events.select, "*", F.array(*rules).alias("_rules"))
    # A plain explode would make Spark compute the rules twice, to see if the array is empty.
    found = found.withColumn(_FLAGGED, F.explode_outer("_rules"))
    found = found.where(F.col(_FLAGGED).isNotNull())
    there = [name for name in metadata.ORDER[2:] if name in events.select(f"{_EVENT}.*").columns]
    place = [F.col(f"{_EVENT}.{name}").cast("string") for name in there]
    known = F.coalesce(F.col(f"`{step.event}`").cast("string"), F.concat_ws("/", *place))
    return found.select(
        F.concat_ws(":", known, f"{_FLAGGED}.{RULE}").alias(ALERT),
        F.col(f"{_FLAGGED}.{RULE}").alias(RULE),
        *(F.col(f"`{name}`") for name in (*step.by, step.event)),
        F.col(f"{_EVENT}.{metadata.TIME}").alias(AT),
        *(F.col(f"{_FLAGGED}.{name}").alias(name) for name in (VALUE, EVIDENCE, SINCE)),
        F.col(_CUT).alias(CUT),
        F.col(TURN),
        *(F.col(f"{_EVENT}.{name}").alias(name) for name in carried),
    )


def _flag(name: str, rule: Rule, step: Alerts) -> Column:
    """The rule, value and evidence if a rule flags an event, else null."""
    evidence = column(rule.evidence, step.where)
    value = F.lit(None) if rule.value is None else column(rule.value, step.where)
    flag = F.struct(
        F.lit(name).alias(RULE),
        value.cast("double").alias(VALUE),
        F.transform(evidence, lambda r: r[step.event].cast("string")).alias(EVIDENCE),
        F.array_min(F.transform(evidence, lambda r: r[metadata.TIME])).alias(SINCE),
    )
    return F.when(column(rule.condition, step.where), flag)


class LatestTable:
    """The newest version of each key. `frame` brings it up to date."""

    def __init__(self, spark: SparkSession, log: Log, table: Table) -> None:
        self._spark = spark
        self._log = log
        self._table = table
        self._range = RangeRead(spark, log)
        nothing = change_rows(table, self._range.nothing(metadata.DELETED))
        self._schema = nothing.drop(TOMBSTONE).schema
        self._versions: pa.Table | None = None
        self._upto: int | None = None
        self._frame = self._shown(nothing.drop(TOMBSTONE))

    def frame(self) -> DataFrame:
        """The columns of the table, with a row for each key."""
        topic = self._table.topic
        after = beginning(self._log, topic).commit if self._upto is None else self._upto
        if self._log.commits(topic, after, 1):
            head = self._log.head()
            self._add(after, head)
            self._upto = head
        return self._frame

    def _add(self, after: int, upto: int) -> None:
        """Add the changes between two commits."""
        topic = self._table.topic
        start, end = (position_at(self._log, topic, commit) for commit in (after, upto))
        compiler = self._range.compiler({topic: start}, {topic: end}, metadata.DELETED)
        found = change_rows(self._table, compiler).drop(TOMBSTONE)
        if self._versions is not None:
            found = found.unionByName(frame_of(self._spark, self._versions, self._schema))
        keys = [F.col(f"`{name}`") for name in self._table.key]
        newest = F.max_by(F.struct(*(F.col(f"`{n}`") for n in found.columns)), F.struct(*ORDER))
        every = found.groupBy(*keys).agg(newest.alias("_newest")).select("_newest.*")
        self._versions = every.toArrow()
        self._frame = self._shown(frame_of(self._spark, self._versions, self._schema))

    def _shown(self, versions: DataFrame) -> DataFrame:
        there = versions.where(~F.col(metadata.DELETED))
        return there.select(*(F.col(f"`{name}`") for name in self._table.columns))


class AlertPlan(StreamPlan):
    """Evaluates rules over the panes that a batch has changed."""

    mode = "update"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.step.stream, Alerts)
        self._step = step = job.step.stream
        self.held = step.delay
        self.closing = Closing.after(micros(step.delay))
        known = step.known
        self._table = None if known is None else LatestTable(job.spark, job.log, known.table)
        sketch = job.sketch()
        found = self._alerts(self.streamed(sketch), 0)
        self.shapes = Shapes(arrow_schema(found), arrow_schema(self.late(sketch)))

    def streamed(self, compiler: Compiler) -> DataFrame:
        """The panes that hold the events."""
        rows = self._rows(compiler).where(~too_late(self._step.delay))
        return held(counted(rows, compiler.counters, "taken"), self._step, compiler.shift)

    def results(self, batch: DataFrame, sink: Sink) -> Rows:
        (reached,) = sink.reached.values()
        return Rows(self._alerts(batch, reached.commit).toArrow().cast(self.shapes.rows))

    def late(self, compiler: Compiler) -> DataFrame:
        return late_rows(self._rows(compiler), self._step.input.columns, self._step.delay)

    def _alerts(self, panes: DataFrame, since: int) -> DataFrame:
        """The alerts of a batch, each with its turn and the position of its event."""
        table = self._table.frame() if self._table is not None else None
        carried = metadata.ORDER[1:4]
        return flagged(panes, self._step, since=F.lit(since), table=table, carried=carried)

    def _rows(self, compiler: Compiler) -> DataFrame:
        rows = compiler.rows(self._step.input).drop(metadata.TOPIC)
        return rows if splits(self._step.input) else rows.drop(metadata.INDEX)


plan = AlertPlan
