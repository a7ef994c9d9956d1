"""The order of steps that read what others write."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log import Log
from headrace.plan.steps import Step, inputs_of
from headrace.store.sqlite.sink import changelog_topic


def part_topics(log: Log, steps: Sequence[Step]) -> list[str]:
    """The topics of inner steps that exist."""
    made = {step.passes_on.name for step in steps if step.passes_on is not None}
    return sorted(made & {topic.name for topic in log.topics()})


def writers_of(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """The steps whose output each step reads, directly, by name.

    Steps in a circle, and those after them, would wait for each other, so they wait for none.
    """
    written = {step.name: _written(step) for step in steps}
    read = {step.name: {source.topic.name for source in inputs_of(step)} for step in steps}
    before = {
        name: tuple(other for other in written if written[other] & topics and other != name)
        for name, topics in read.items()
    }
    ordered: set[str] = set()
    while ready := [n for n in before if n not in ordered and ordered.issuperset(before[n])]:
        ordered.update(ready)
    return {name: before[name] if name in ordered else () for name in before}


def _written(step: Step) -> set[str]:
    changes = changelog_topic(step)
    return {*step.outputs, *step.late, step.dead_letters, *([changes] if changes else [])}
