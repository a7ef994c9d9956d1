"""Event time: how long a step waits for late rows, and the warning about arrival time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from headrace.errors import InvalidWindow
from headrace.log.settings import format_span
from headrace.log.state import Topic
from headrace.pipeline.arguments import constructor
from headrace.pipeline.where import Where

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns with the window of a result."""


@constructor
@dataclass(frozen=True)
class Lateness:
    """The lateness that rows may have. There are no defaults, because only you know.

    The watermark of a row is the highest event time in its topic before the row's commit, less
    `delay`. A window fires when the watermark reaches its end. For `grace` longer, rows still
    amend it, and the correction is emitted as a new revision. After that a row is late.
    """

    delay: timedelta
    grace: timedelta
    noun: ClassVar[str] = "a Lateness"
    example: ClassVar[str] = "hr.Lateness(delay={span}, grace=timedelta(0))"

    def __post_init__(self) -> None:
        if self.delay < timedelta(0) or self.grace < timedelta(0):
            spans = f"delay {format_span(self.delay)}, grace {format_span(self.grace)}"
            raise InvalidWindow(f"Lateness cannot be negative: {spans}")


class ArrivalTimeWarning(UserWarning):
    """An aggregation counts rows without an event time at their arrival time."""


def warn_of_arrival(topics: Iterable[Topic], keys: Sequence[str], where: Where) -> None:
    """Warn if an aggregation by these keys may count rows at their arrival time."""
    for topic in topics:
        if topic.settings.missing_time == "arrival":
            warnings.warn_explicit(
                f"{', '.join(keys)} will be counted by arrival time where rows of topic "
                f"{topic.name!r} have no event time. After an outage, the whole backlog counts for "
                "the minute in which it arrives: right for monitoring the system, wrong for facts "
                "about the events",
                ArrivalTimeWarning,
                where.file,
                where.line,
            )
