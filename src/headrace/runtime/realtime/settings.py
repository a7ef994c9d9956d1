"""The settings of a real-time run, and the options of Spark that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import micros
from headrace.errors import InvalidSetting

_SHORTEST = timedelta(seconds=5)
_MARGIN = timedelta(minutes=1)

QUERY_SETTINGS = {
    # The only state store with which Spark can return to the start of a batch.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""Spark settings of the query."""

_MESSAGE_BYTES = 72 << 20

WRITING = {
    # By default Java's producer refuses records above a megabyte, which a topic may accept.
    "kafka.max.request.size": str(_MESSAGE_BYTES),
    "kafka.buffer.memory": str(_MESSAGE_BYTES),
}
"""Options of Spark's Kafka sink: the same limits as headrace's own producers."""


@dataclass(frozen=True)
class RealTime:
    """The checkpoint interval and the state retention of a real-time run.

    Spark writes a checkpoint every `checkpoint`, while rows wait for a moment. After a crash, rows
    since the last checkpoint are read again. State is kept for `hold` longer than its lateness
    needs, so that rows which waited during a downtime can still be counted.
    """

    checkpoint: timedelta = timedelta(minutes=5)
    hold: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.checkpoint < _SHORTEST:
            raise InvalidSetting(
                f"checkpoint cannot be {self.checkpoint}",
                hint=f"Spark accepts {_SHORTEST.seconds} seconds or more",
            )
        if self.hold < timedelta(0):
            raise InvalidSetting(
                f"hold cannot be {self.hold}", hint="It is a duration of 0 or more"
            )

    @property
    def trigger(self) -> str:
        return f"{micros(self.checkpoint) // 1000} milliseconds"

    def held_for(self, patience: timedelta) -> str:
        """The delay of Spark's watermark, so that it drops no row that the plan accepts.

        The margin is for a clock that is set back between two batches.
        """
        return f"{micros(patience + self.hold + _MARGIN)} microseconds"
