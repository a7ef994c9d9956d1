"""The explanation of an application in plain text."""

from __future__ import annotations

import html
from dataclasses import dataclass


@dataclass(frozen=True)
class StepExplanation:
    """A step and the facts about it: a label and a sentence each."""

    name: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(word) for word, _ in self.facts)
        lines = [f"  {word:<{width}}  {text}" for word, text in self.facts]
        return "\n".join([f"step {self.name}", *lines])

    def _repr_html_(self) -> str:
        lines = "".join(
            f'<tr><th style="text-align: left">{html.escape(word)}</th>'
            f'<td style="text-align: left">{html.escape(text)}</td></tr>'
            for word, text in self.facts
        )
        return f"<p><b>step {html.escape(self.name)}</b></p><table>{lines}</table>"

    def __getitem__(self, word: str) -> str:
        """The sentences with a label, one per line."""
        return "\n".join(text for about, text in self.facts if about == word)


@dataclass(frozen=True, repr=False)
class Explanation:
    """An application in plain text, ready to print. In a notebook, it is HTML."""

    app: str
    steps: tuple[StepExplanation, ...]

    def __str__(self) -> str:
        return "\n\n".join([f"application {self.app}", *map(str, self.steps)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        steps = "".join(step._repr_html_() for step in self.steps)
        return f"<p>application {html.escape(self.app)}</p>{steps}"

    def __getitem__(self, step: str) -> StepExplanation:
        """One step."""
        return next(found for found in self.steps if found.name == step)
