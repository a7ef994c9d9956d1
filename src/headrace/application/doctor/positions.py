"""A lost position: the log is not the one that a step has read."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.application.doctor.finding import Finding


@dataclass(frozen=True)
class LostPlace(Finding):
    """The error that a run would stop with, and the position of the step."""

    name = "lost place"
    reason: str
    reached: str
    choices: str

    @property
    def what(self) -> str:
        return self.reason

    @property
    def evidence(self) -> tuple[str, ...]:
        return (f"results are stored up to {self.reached}",)

    @property
    def remedy(self) -> str:
        return self.choices
