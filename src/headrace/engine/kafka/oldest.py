"""The oldest rows of a batch: late rows are among them, so that only these are decoded again.

Spark keeps their places on the way. Where more rows may be late than it keeps, all are looked at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.engine import places

KEPT = 1_000
"""So many rows are kept of each topic and batch."""

ROWS = "rows"
_PARTITION_BITS = 40
"""A place is one number: the offset, and above so many bits the partition."""


def metric_of(topic: str) -> str:
    """The name under which Spark keeps the oldest rows of a topic."""
    return f"oldest-{topic}"


def oldest_rows() -> Column:
    """The places and times of the rows whose event times are the lowest."""
    moment = F.unix_micros(places.TIME).alias("time")
    row = F.struct(_number(places.PARTITION, places.OFFSET).alias("place"), moment)
    return F.min_by(row, F.col(places.TIME), KEPT)


def place() -> Column:
    """The place of a record as Kafka's source gives it."""
    return _number("partition", "offset")


@dataclass(frozen=True)
class Oldest:
    """Places and times of rows, of which all others are no older than the last."""

    rows: tuple[tuple[int, int], ...]

    @staticmethod
    def from_json(text: str) -> Oldest:
        """From what Spark says of the metric."""
        found = json.loads(text)[ROWS] or ()
        return Oldest(tuple((row["place"], row["time"]) for row in found))

    def before(self, moment: int) -> list[int] | None:
        """The places of all rows before a moment; None if there may be others."""
        found = [place for place, time in self.rows if time < moment]
        return found if len(found) < KEPT else None


def _number(partition: str, offset: str) -> Column:
    return F.shiftleft(F.col(partition).cast("bigint"), _PARTITION_BITS).bitwiseOR(F.col(offset))
