"""A finding of the doctor, and numbers, times and durations in its sentences."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from headrace import wording
from headrace.clock import SECOND, to_text


@dataclass(frozen=True)
class Finding(ABC):
    """A problem of a step or a topic. Subclasses add the numbers as fields."""

    name: ClassVar[str]
    subject: str
    """The step or topic with the problem."""

    @property
    @abstractmethod
    def what(self) -> str:
        """The problem in a sentence."""

    @property
    @abstractmethod
    def evidence(self) -> tuple[str, ...]:
        """The facts that show it."""

    @property
    @abstractmethod
    def remedy(self) -> str:
        """The next thing to do."""

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {
            "name": self.name,
            "what": self.what,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            **dataclasses.asdict(self),
        }


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


def when(moment: int | None) -> str:
    """A time in UTC, to the second."""
    return "never" if moment is None else to_text(moment)


def span(micros: int) -> str:
    """A duration, rounded for people."""
    return wording.span(micros / SECOND)


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def code(span: timedelta) -> str:
    """A duration as it is written in a pipeline."""
    return f"td(seconds={span.total_seconds():g})"


def printable(text: str) -> str:
    """Text from outside, escaped so that it cannot control the terminal."""
    return text if text.isprintable() else repr(text)
