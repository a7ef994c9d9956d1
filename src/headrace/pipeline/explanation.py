"""An application in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepExplanation:
    """A step, and what there is to say of it: a word of what it is about, and a sentence each."""

    name: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(word) for word, _ in self.facts)
        lines = [f"  {word:<{width}}  {text}" for word, text in self.facts]
        return "\n".join([f"step {self.name}", *lines])

    def __getitem__(self, word: str) -> str:
        """What is said under a word, line by line."""
        return "\n".join(text for about, text in self.facts if about == word)


@dataclass(frozen=True, repr=False)
class Explanation:
    """An application in words. It prints well."""

    app: str
    steps: tuple[StepExplanation, ...]

    def __str__(self) -> str:
        return "\n\n".join([f"application {self.app}", *map(str, self.steps)])

    def __repr__(self) -> str:
        return str(self)

    def __getitem__(self, step: str) -> StepExplanation:
        """One step."""
        return next(found for found in self.steps if found.name == step)
