"""What can be set of a run in real time, and what Spark has to be told for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import micros
from headrace.errors import InvalidSetting

_SHORTEST = timedelta(seconds=5)
_MARGIN = timedelta(minutes=1)

QUERY_SETTINGS = {
    # The only state store that Spark can go back with to where a batch began.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""What a query is given when it starts."""

_MESSAGE_BYTES = 72 << 20

WRITING = {
    # Java's producer refuses records of more than a megabyte, which a topic may well take.
    "kafka.max.request.size": str(_MESSAGE_BYTES),
    "kafka.buffer.memory": str(_MESSAGE_BYTES),
}
"""Options of Spark's Kafka sink: it may send what headrace's own producers may."""


@dataclass(frozen=True)
class RealTime:
    """How a run in real time keeps its place.

    Every `checkpoint` Spark writes down how far it is: what came after that is read again after a
    crash. It takes a moment, in which rows wait. What a row needs is held for `hold` longer than
    its lateness asks for, so that rows which were there while nobody read them can still be looked
    at.
    """

    checkpoint: timedelta = timedelta(minutes=5)
    hold: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.checkpoint < _SHORTEST:
            raise InvalidSetting(
                f"checkpoint cannot be {self.checkpoint}",
                hint=f"Spark takes {_SHORTEST.seconds} seconds or more",
            )
        if self.hold < timedelta(0):
            raise InvalidSetting(
                f"hold cannot be {self.hold}", hint="It is a span of time, or none"
            )

    @property
    def trigger(self) -> str:
        return f"{micros(self.checkpoint) // 1000} milliseconds"

    def held_for(self, patience: timedelta) -> str:
        """How far Spark's watermark stays behind, so that it drops no row which the plan lets pass.

        The margin is for a clock that is set back between two batches.
        """
        return f"{micros(patience + self.hold + _MARGIN)} microseconds"
