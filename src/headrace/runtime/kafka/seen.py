"""What Spark has seen of a batch, read off the plan that it has just run.

Spark counts rows where they are read and where their times are looked at, whether anyone asks or
not. Counters of our own there would make every row slower.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from headrace.clock import MILLISECOND
from headrace.runtime.spark_internals import dropped, metric, nodes


@dataclass(frozen=True)
class Seen:
    """What was read of a topic: all rows, those with a place in time, and the span of their times.

    Times are microseconds, of which Spark looks at whole milliseconds.
    """

    rows: int
    placed: int
    oldest: int | None
    newest: int | None


NOTHING = Seen(0, 0, None, None)


@dataclass(frozen=True)
class SeenBatch:
    """What was read of each topic, and how many groups Spark's watermark was too late for."""

    topics: dict[str, Seen]
    dropped: int


def seen_by(plan: Any, shift: int) -> SeenBatch:
    """The counts of a plan that was run. A topic with nothing new is not in it.

    `shift` is what its times are moved on by where Spark looks at them.
    """
    topics: dict[str, Seen] = {}
    late = 0
    times: Any = None
    for kind, node in nodes(plan):
        match kind:
            case "StateStoreSaveExec":
                late += dropped(node)
            case "EventTimeWatermarkExec":
                times = node.eventTimeStats().value()
            case "MicroBatchScanExec":  # which lies right under where its times are looked at
                (topic,) = json.loads(node.end().json())
                topics[topic] = _seen(metric(node, "numOutputRows"), times, shift)
    return SeenBatch(topics, late)


def _seen(rows: int, times: Any, shift: int) -> Seen:
    placed = int(times.count())
    if not placed:
        return replace(NOTHING, rows=rows)
    oldest, newest = (int(found) * MILLISECOND - shift for found in (times.min(), times.max()))
    return Seen(rows, placed, oldest, newest)
