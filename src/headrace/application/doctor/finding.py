"""A finding of the doctor: a name, its evidence and its remedy."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


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
