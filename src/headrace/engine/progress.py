"""How a step is doing, for whoever watches."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.law import Law


@dataclass(frozen=True)
class StepProgress:
    """How a step is doing. Times are microseconds."""

    step: str
    law: Law
    frontier: int | None
    lag: int
    """Rows in the log that it has not stored the results of."""
