"""How a step is doing, for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.plan.law import Law


@dataclass(frozen=True)
class StepProgress:
    """How a step is doing. Times are microseconds."""

    step: str
    law: Law
    frontier: int | None
    lag: int
    """Rows in the log that it has not stored the results of."""
    lags: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The same for each partition of its topics, where that is known."""
