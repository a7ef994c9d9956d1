"""What the doctor has found: a name, the evidence for it, and what to do about it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Finding(ABC):
    """Something that is wrong with a step or a topic. Its own fields are the numbers."""

    name: ClassVar[str]
    subject: str
    """The step or the topic that has it."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, in a sentence."""

    @property
    @abstractmethod
    def evidence(self) -> tuple[str, ...]:
        """What it was seen by."""

    @property
    @abstractmethod
    def remedy(self) -> str:
        """What to do about it."""

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "name": self.name,
            "what": self.what,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            **dataclasses.asdict(self),
        }
