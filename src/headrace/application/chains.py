"""Steps that read what others write: their order, and the inner steps of a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import ViewError
from headrace.log import Log
from headrace.plan.steps import Step, fingerprints, inputs_of
from headrace.runtime.task import Task
from headrace.store.sqlite.sink import changelog_topic
from headrace.store.sqlite.stored import StoredStep


def part_topics(log: Log, steps: Sequence[Step]) -> list[str]:
    """The topics of inner steps that exist."""
    made = {step.passes_on.name for step in steps if step.passes_on is not None}
    return sorted(made & {topic.name for topic in log.topics()})


def inner_steps(step: Step, steps: Sequence[Step]) -> list[Step]:
    """The inner steps whose results a step reads, directly or not."""
    mine = [s for s in steps if s.passes_on is not None and _reads(step, {s.passes_on.name})]
    return [found for one in mine for found in (*inner_steps(one, steps), one)]


def is_stored(step: Step, stored: Mapping[str, StoredStep]) -> bool:
    """True if there are results of a step as it is declared."""
    return step.name in stored and stored[step.name].fingerprint in fingerprints(step)


def check_inner(step: Step, inner: Sequence[Step], stored: Mapping[str, StoredStep]) -> None:
    """Check that a rebuild of a step finds the results of its inner steps as declared."""
    for one in inner:
        if not is_stored(one, stored):
            was = "has changed" if one.name in stored else "is new"
            raise ViewError(
                f"View {step.name!r} reads the results of its inner step {one.name!r}, which {was}",
                hint="A rebuild computes only the view. headrace run --fresh recomputes "
                "everything. With another name, the view is a new one, beside this one",
            )


def stages_of(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps in stages: each reads what steps of earlier stages write, and no others.

    Steps that read each other's output in a circle, and those after them, are in the last stage.
    """
    written = {step.name: _written(step) for step in steps}
    left, stages = list(steps), []
    while left:
        ready = [s for s in left if not any(_reads(s, written[o.name]) for o in left if o is not s)]
        stages.append(ready or left)
        left = [step for step in left if step not in stages[-1]]
    return stages


def writers_of(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """The steps of earlier stages whose output each step reads, by name."""
    found: dict[str, tuple[str, ...]] = {}
    earlier: list[Step] = []
    for stage in stages_of(steps):
        for step in stage:
            found[step.name] = tuple(o.name for o in earlier if _reads(step, _written(o)))
        earlier += stage
    return found


def writers_of_topics(steps: Sequence[Step]) -> dict[str, Step]:
    """The step that writes to each topic."""
    return {topic: step for step in steps for topic in _written(step)}


def follow(steps: Sequence[Step], tasks: Mapping[str, Task]) -> None:
    """Let the task of each step start when those whose output it reads have caught up."""
    for name, writers in writers_of(steps).items():
        tasks[name].after += tuple(tasks[writer] for writer in writers)


def _reads(step: Step, topics: set[str]) -> bool:
    return any(source.topic.name in topics for source in inputs_of(step))


def _written(step: Step) -> set[str]:
    changes = changelog_topic(step)
    return {*step.outputs, *step.late, step.dead_letters, *([changes] if changes else [])}
