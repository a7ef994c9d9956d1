"""Detection of hot keys before a batch is joined.

A row is matched with all held rows of its key, so a key with very many rows on both sides makes
more pairs than fit on a disk. Rows are counted by key and period of event time, so the result
depends on the log alone. Counting reads the log again. It is put off while all uncounted rows
together could not bring any key to the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.clock import micros, to_text
from headrace.errors import CrowdedKey
from headrace.log import Log
from headrace.operators.stream_join.declare import Join
from headrace.pipeline.row_steps import Explode, branches, needed_columns, project
from headrace.pipeline.stream import Stream, contains, sources
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.late_rows import too_late
from headrace.plan.position import Position, Positions, beginning, position_at
from headrace.plan.range_read import RangeRead
from headrace.plan.waiting import commits_of
from headrace.schema.python_rows import to_rows

_PERIOD, _COUNT = "_period", "_count"

_HOTTEST = 10_000
"""The number of keys remembered. A forgotten key had at most one in this many of all rows."""


class HotKeys:
    """Counts the rows of the keys of a join."""

    def __init__(self, spark: SparkSession, log: Log, step: str, join: Join) -> None:
        sides = ((join.left, 0, join.after), (join.right, 1, join.before))
        self._step = step
        self._join = join
        self._sides = [
            SideKeys(RangeRead(spark, log), side, [pair[at] for pair in join.on], wait, join)
            for side, at, wait in sides
        ]

    def check(self, start: Positions, end: Positions) -> None:
        """Raise `CrowdedKey` if a key exceeds the limit with the rows between two positions."""
        for side in self._sides:
            found = side.hottest(start, end)
            if found is not None and found.rows > self._join.limit:
                raise self._error(found)

    def _error(self, hot: Hot) -> CrowdedKey:
        key = " and ".join(f"{name} = {value!r}" for name, value in hot.key.items())
        return CrowdedKey(
            f"Step {self._step!r} has {hot.rows:,} rows of {hot.topics} with {key} in the "
            f"{hot.span} from {to_text(hot.since)} on, and its limit is "
            f"{self._join.limit:,}",
            hint="Nothing of this batch was stored. If the key is a placeholder, filter it out; "
            "else join by more columns, hold rows for a shorter time, or set a higher limit. "
            f"See {self._join.where}",
            key=hot.key,
            rows=hot.rows,
            limit=self._join.limit,
        )


@dataclass(frozen=True)
class Hot:
    """A key and its number of rows in a period."""

    key: dict[str, object]
    rows: int
    topics: str
    since: int
    span: timedelta


@dataclass
class SideKeys:
    """The rows of one side of a join, by key and period."""

    between: RangeRead
    side: Stream
    keys: list[str]
    wait: timedelta
    join: Join
    counted: pa.Table | None = None
    upto: Positions = field(default_factory=dict)

    @property
    def span(self) -> int:
        """The length of a period: the time for which a row is held."""
        return max(micros(self.wait) + micros(self.join.delay), 1)

    def hottest(self, start: Positions, end: Positions) -> Hot | None:
        """The key with the most rows; None if no key can exceed the limit."""
        if not self.upto:
            self.upto = {topic: beginning(self.between.log, topic) for topic in self._topics}
        if self._possible(end) <= self.join.limit:
            return None
        self.upto = {t: _still_there(self.between.log, t, place) for t, place in self.upto.items()}
        self._drop_closed(start)
        if self._possible(end) <= self.join.limit:
            return None
        self.counted = self._merged(self._count(end))
        self.upto = {topic: end[topic] for topic in self._topics}
        if not self.counted.num_rows:
            return None
        (first,) = to_rows(self.counted.slice(0, 1))
        return Hot(
            {name: first[name] for name in self.keys},
            first[_COUNT],
            " and ".join(self._topics),
            first[_PERIOD] * self.span,
            timedelta(microseconds=self.span),
        )

    def _possible(self, end: Positions) -> int:
        """The most rows that a key can have: its counted rows plus all uncounted ones."""
        if contains(self.side, Explode):
            return self.join.limit + 1  # a row of the log may become any number of rows
        most = 0 if self.counted is None else pc.max(self.counted.column(_COUNT)).as_py() or 0
        ways = branches(self.side)
        new = {topic: end[topic].rows_after(self.upto[topic]) for topic in self._topics}
        return most + sum(ways[topic] * rows for topic, rows in new.items())

    def _drop_closed(self, start: Positions) -> None:
        """Drop the periods for which no more rows can arrive."""
        log = self.between.log
        commits = {topic: start[topic].commit for topic in self._topics}
        found = [
            log.frontier(topic, commit) if commit else None for topic, commit in commits.items()
        ]
        known = [frontier for frontier in found if frontier is not None]
        if len(known) < len(found):
            return
        period = (min(known) - micros(self.join.delay)) // self.span
        if self.counted is not None:
            self.counted = self.counted.filter(pc.field(_PERIOD) >= period)
        for topic, place in self.upto.items():
            numbers, frontiers = commits_of(log, topic, place.commit, start[topic].commit)
            over = numbers[frontiers < period * self.span]
            if len(over):
                here = _still_there(log, topic, position_at(log, topic, int(over[-1])))
                self.upto = {**self.upto, topic: here}

    @property
    def _topics(self) -> list[str]:
        return [source.topic.name for source in sources(self.side)]

    def _count(self, end: Positions) -> pa.Table:
        """The hottest keys among the rows that were not counted yet."""
        chosen = project(self.side, [(name, f"`{name}`") for name in self.keys], self.join.where)
        compiler = self.between.compiler(self.upto, end, needed=needed_columns(chosen))
        rows = compiler.rows(chosen).where(~too_late(self.join.delay))
        for name in self.keys:
            rows = rows.where(F.col(f"`{name}`").isNotNull())
        # In integers: a double cannot hold every microsecond after the year 2255.
        moment, span = F.unix_micros(metadata.TIME), F.lit(self.span)
        period = F.call_function("div", moment - F.pmod(moment, span), span)
        found = rows.groupBy(
            *(F.col(f"`{name}`") for name in self.keys), period.alias(_PERIOD)
        ).agg(F.count(F.lit(1)).alias(_COUNT))
        hottest = found.orderBy(F.col(_COUNT).desc()).limit(_HOTTEST)
        return hottest.toArrow().cast(arrow_schema(hottest))

    def _merged(self, new: pa.Table) -> pa.Table:
        """The old and new counts together, the hottest first."""
        if self.counted is not None:
            both = pa.concat_tables([self.counted, new])
            by = [*self.keys, _PERIOD]
            made = both.group_by(by).aggregate([(_COUNT, "sum")])
            new = made.rename_columns([*by, _COUNT]).select(new.column_names)
        return new.sort_by([(_COUNT, "descending")]).slice(0, _HOTTEST)


def _still_there(log: Log, topic: str, place: Position) -> Position:
    """A position, or a later one if retention has removed the rows after it."""
    kept = beginning(log, topic)
    offsets = (max(kept_at, at) for at, kept_at in place.ranges(kept))
    return Position(place.commit, tuple(offsets))
