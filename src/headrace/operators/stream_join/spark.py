"""The plan of a stream-stream join, by Spark's own operator.

Late rows are removed before Spark sees them, so Spark's watermark never passes a row still to come,
and all pairs are found whatever the batches are. Spark does not emit unmatched rows in a way that a
replay repeats. So an outer join also emits its input rows, identified by their position in the log,
and the store removes those that have matched.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.operators.stream_join.declare import JOINED_AT, SIDE, Join
from headrace.operators.stream_join.hot_keys import HotKeys
from headrace.pipeline.stream import Stream
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Rows, Shapes, Sink
from headrace.plan.compile import Compiler, checked, row_place
from headrace.plan.counters import counted
from headrace.plan.late_rows import late_columns, too_late
from headrace.plan.lateness import Closing
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import Positions
from headrace.plan.staging import stage
from headrace.plan.watermark import unshifted

KIND = "_kind"
PAIR, LEFT, RIGHT = 0, 1, 2
"""The kind of a row of the joined stream: a pair, or a row of one side."""

LEFT_ROW, RIGHT_ROW = "_left_row", "_right_row"
"""The identities of the rows of a pair, or of the single row."""

_MILLISECOND = timedelta(milliseconds=1)


class JoinPlan(StreamPlan):
    """Two streams in Spark's state, and hot keys found before a batch is joined."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.step.stream, Join)
        self._join = join = job.step.stream
        # Spark truncates the bounds of a join to milliseconds.
        self.held = join.delay + _MILLISECOND
        self.closing = Closing.after(micros(join.delay))
        sketch = job.sketch()
        self._staged = arrow_schema(self.streamed(sketch))
        rows = pa.schema([self._staged.field(name) for name in join.columns])
        self.shapes = Shapes(rows, arrow_schema(self.late(sketch)))
        self._hot_keys = HotKeys(job.spark, job.log, job.step.name, join)

    def streamed(self, compiler: Compiler) -> DataFrame:
        """Pairs, and the rows of the sides whose unmatched rows are emitted."""
        join = self._join
        left = self._side(compiler, join.left, "left")
        right = self._side(compiler, join.right, "right")
        made = self._pairs(left, right, compiler.shift)
        if join.keeps_left:
            made = made.unionByName(
                self._alone(left, LEFT, compiler.shift), allowMissingColumns=True
            )
        if join.keeps_right:
            made = made.unionByName(
                self._alone(right, RIGHT, compiler.shift), allowMissingColumns=True
            )
        return made

    def results(self, batch: DataFrame, sink: Sink) -> Rows:
        return Rows(stage(batch, self.job.staging, self._staged))

    def late(self, compiler: Compiler) -> DataFrame:
        """The late rows of both sides, with the watermark at their arrival."""
        join, parts = self._join, []
        for side, stream in (("left", join.left), ("right", join.right)):
            rows = compiler.rows(stream).where(too_late(join.delay))
            own = (column.alias(name) for name, column in self._own(side, ""))
            parts.append(rows.select(*own, F.lit(side).alias(SIDE), *late_columns(join.delay)))
        made = parts[0].unionByName(parts[1], allowMissingColumns=True)
        return made.select(*(F.col(f"`{name}`") for name in join.late.columns))

    def check(self, start: Positions, end: Positions) -> None:
        self._hot_keys.check(start, end)

    def _side(self, compiler: Compiler, stream: Stream, side: str) -> DataFrame:
        """The rows of a side that are in time, under names that the other side does not have."""
        rows = compiler.rows(stream).where(~too_late(self._join.delay))
        rows = counted(rows, compiler.counters, "taken")
        kept = [F.col(f"`{name}`").alias(f"_{side}_{name}") for name in stream.columns]
        # Only a stream has a watermark; other frames are used for their columns.
        met = metadata.MET if metadata.MET in rows.columns else metadata.TIME
        time = F.col(met).alias(f"_{side}_time")
        if self._join.how != "inner":
            kept.append(row_place().alias(f"_{side}_row"))
        return rows.select(*kept, time)

    def _pairs(self, left: DataFrame, right: DataFrame, shift: int) -> DataFrame:
        join = self._join
        lower, upper = (_interval(span) for span in (join.before, join.after))
        match = F.expr(
            f"_right_time >= _left_time - {lower} AND _right_time <= _left_time + {upper}"
        )
        for mine, theirs in join.on:
            match = match & (F.col(f"`_left_{mine}`") == F.col(f"`_right_{theirs}`"))
        pairs = checked(join.where, left.join, right, match, "inner")
        known = _moment(F.greatest("_left_time", "_right_time"), shift).alias(JOINED_AT)
        if join.how == "anti":
            return pairs.select(F.lit(PAIR).alias(KIND), LEFT_ROW)
        columns = self._own("left", "_left_") + self._own("right", "_right_", keys=False)
        ids = [] if join.how == "inner" else [LEFT_ROW, RIGHT_ROW]
        made = (column.alias(name) for name, column in columns)
        return pairs.select(F.lit(PAIR).alias(KIND), *ids, *made, known)

    def _alone(self, rows: DataFrame, kind: int, shift: int) -> DataFrame:
        side = "left" if kind == LEFT else "right"
        wait = self._join.after if kind == LEFT else self._join.before
        known = _moment(F.col(f"_{side}_time"), shift, micros(wait))
        own = [column.alias(name) for name, column in self._own(side, f"_{side}_")]
        return rows.select(F.lit(kind).alias(KIND), f"_{side}_row", *own, known.alias(JOINED_AT))

    def _own(self, side: str, prefix: str, *, keys: bool = True) -> list[tuple[str, Column]]:
        """The result columns of a side, from its own columns with a prefix."""
        join = self._join
        if side == "left":
            names = [(name, name) for name in join.left.columns]
        else:
            names = [(theirs, mine) for mine, theirs in join.on] if keys else []
            names += join.from_right
        return [(made, F.col(f"`{prefix}{name}`")) for name, made in names]


plan = JoinPlan


def _moment(time: Column, shift: int, later: int = 0) -> Column:
    """An unshifted event time, moved by some microseconds."""
    return F.timestamp_micros(unshifted(time, shift) + F.lit(later))


def _interval(span: timedelta) -> str:
    return f"INTERVAL '{micros(span) / 1_000_000:.6f}' SECOND"
