"""Windows of when rows came in, for how a system does, and a warning for everything else."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from headrace.log.state import Topic
from headrace.pipeline.where import Where


class ArrivalTimeWarning(UserWarning):
    """Something is counted by when its rows came in, and not by when they happened."""


def warn_of_arrival(topics: Iterable[Topic], keys: Sequence[str], where: Where) -> None:
    """Warn if what is counted by key may be counted by when its rows came in."""
    for topic in topics:
        if topic.settings.missing_time == "arrival":
            warnings.warn_explicit(
                f"{', '.join(keys)} will be counted by when rows of topic {topic.name!r} came in, "
                "where they have no event time. After an outage, all that was waiting counts for "
                "the minute in which it was over: right for how the system does, and wrong for "
                "what the rows are about",
                ArrivalTimeWarning,
                where.file,
                where.line,
            )
