"""The warning for aggregations by arrival time instead of event time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from headrace.log.state import Topic
from headrace.pipeline.where import Where


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
