"""Many dead letters: rows that no step could count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.application.doctor.finding import Finding, percent, printable
from headrace.log import Log
from headrace.log.sample import newest
from headrace.plan.law import Law
from headrace.wording import many

_SHARE = 0.05
"""The share of rows that is no accident."""
_REASONS = 3
_EXAMINED = 10_000


@dataclass(frozen=True)
class DeadLetters(Finding):
    """The dead letters of a step, the topic that has them, and their most frequent reasons."""

    name = "dead letters"
    dead: int
    rows: int
    topic: str
    reasons: tuple[tuple[str, int], ...]

    @property
    def what(self) -> str:
        share = percent(self.dead / self.rows)
        return f"{many(self.dead, 'row')} of {self.rows:,} ({share}) could not be counted"

    @property
    def evidence(self) -> tuple[str, ...]:
        return tuple(
            f"{printable(reason)}: {many(count, 'row')} of the newest in {self.topic}"
            for reason, count in self.reasons
        )

    @property
    def remedy(self) -> str:
        return (
            f"'headrace consume {self.topic}' shows each row with its reason. Correct the producer "
            "or the topic's event time, and send the rows again"
        )


def many_dead(log: Log, step: str, law: Law, topic: str) -> DeadLetters | None:
    """The dead letters of a step, if they are a large share of its rows."""
    if not law.rows or law.dead / law.rows < _SHARE:
        return None
    reasons: Counter[str] = Counter()
    if any(found.name == topic for found in log.topics()):
        for batch in newest(log, topic, _EXAMINED).batches:
            letters = batch.data.select(["step", "reason"]).to_pylist()
            reasons.update(letter["reason"] for letter in letters if letter["step"] == step)
    return DeadLetters(step, law.dead, law.rows, topic, tuple(reasons.most_common(_REASONS)))
