"""Check an application against its stored results, without Spark and without changes.

hr.preflight(app, "file:./data").require()
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.application.chains import inner_steps, is_stored
from headrace.errors import ChangedPipeline, HeadraceError, NotALog
from headrace.language.differences import differences
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.pipeline.app import App
from headrace.plan.gaps import Gaps
from headrace.plan.position import Position, Positions, beginning, behind
from headrace.plan.steps import Step, check_topics, definition_of, fingerprints, steps_of
from headrace.runtime.checkpoint import Checkpoint, owner_of
from headrace.store.location import build_place, checkpoint_of, database_of
from headrace.store.sqlite.stored import StoredStep, steps_in, switched_in

__all__ = ["Preflight", "StepCheck", "preflight"]

Status = Literal["unchanged", "new", "changed", "undeclared", "refused"]


@dataclass(frozen=True)
class StepCheck:
    """The declaration of a step, compared with its stored results.

    A step is `changed` if its results are of another declaration, `undeclared` if it is no longer
    declared, and `refused` if it cannot continue for the reason in `error`.
    """

    step: str
    status: Status
    saved: str
    """The use of the stored results and state in a run."""
    changes: tuple[str, ...] = ()
    error: HeadraceError | None = None


@dataclass(frozen=True)
class Preflight:
    """The checks of all steps of an application."""

    app: str
    steps: tuple[StepCheck, ...]
    first: bool
    """True if nothing of the application is stored yet."""

    @property
    def ok(self) -> bool:
        """True if a run can continue from the stored results."""
        return all(step.error is None for step in self.steps)

    @property
    def news(self) -> tuple[StepCheck, ...]:
        """The steps that differ from the last run, if there was one."""
        return tuple(s for s in self.steps if not self.first and s.status != "unchanged")

    def require(self) -> None:
        """Raise if a run cannot continue from the stored results."""
        changed = [s.error for s in self.steps if s.status == "changed" and s.error is not None]
        if changed:
            hints = dict.fromkeys(line for e in changed for line in e.hint.splitlines())
            raise ChangedPipeline("; ".join(e.message for e in changed), hint="\n".join(hints))
        for step in self.steps:
            if step.error is not None:
                raise step.error


def preflight(app: App, log: str | Log | None = None) -> Preflight:
    """Check an application before a run. It starts no Spark and creates nothing, nor a log."""
    steps = steps_of(app)
    with contextlib.ExitStack() as stack:
        there: Log | None = log if isinstance(log, Log) else None
        if not isinstance(log, Log):
            with contextlib.suppress(NotALog):
                there = stack.enter_context(open_log(log or app.log or DEFAULT_LOG, create=False))
        if there is None:
            return Preflight(app.name, tuple(map(_new, steps)), True)
        path = database_of(there.home, app.name)
        stored, switched = steps_in(path), switched_in(path)
        if begins_anew(steps, stored):
            return Preflight(app.name, tuple(_topics_checked(there, s) for s in steps), True)
        found = []
        for step in steps:
            usable = all(is_stored(inner, stored) for inner in inner_steps(step, steps))
            can_rebuild = step.view is not None and usable
            before = stored.get(step.name)
            found.append(_check(there, step, before, step.name in switched, can_rebuild))
        declared = {step.name for step in steps}
        left = [
            StepCheck(name, "undeclared", "kept, but no longer updated")
            for name in stored
            if name not in declared
        ]
        return Preflight(app.name, (*found, *left), not stored)


def begins_anew(steps: Sequence[Step], stored: Mapping[str, StoredStep]) -> bool:
    """True if an application has changed that failed before it stored anything.

    Then nothing is lost if its empty results and its checkpoints are removed.
    """
    if any(before.updated for before in stored.values()):
        return False
    kept = ((stored[step.name], step) for step in steps if step.name in stored)
    return any(before.fingerprint not in fingerprints(step) for before, step in kept)


def _topics_checked(log: Log, step: Step) -> StepCheck:
    try:
        check_topics(log, step)
    except HeadraceError as error:
        return StepCheck(step.name, "refused", "not usable", (error.message,), error)
    return _new(step)


def _new(step: Step) -> StepCheck:
    return StepCheck(step.name, "new", "none: computed from the start of the log")


def _check(
    log: Log, step: Step, stored: StoredStep | None, switched: bool, can_rebuild: bool
) -> StepCheck:
    if stored is not None and stored.fingerprint not in fingerprints(step):
        declared = json.loads(json.dumps(definition_of(step)))  # as it would be stored
        changes = tuple(differences(stored.definition, declared))
        saved = f"{_upto(stored.reached)}, incompatible"
        return StepCheck(step.name, "changed", saved, changes, _changed(step, changes, can_rebuild))
    try:
        check_topics(log, step)
        if stored is not None and Capability.COMMITS in log.capabilities:
            Gaps(log, step.name, stored.reached).check(stored.reached)
        if not step.stream.has_checkpoint:
            if stored is None:
                return _new(step)
            return StepCheck(step.name, "unchanged", f"{_upto(stored.reached)}, reused")
        checkpoint = Checkpoint(checkpoint_of(log.home, step.app, step.name))
        if switched and (beside := build_place(log.home, step.app, step.name)).checkpoint.exists():
            checkpoint = Checkpoint(beside.checkpoint)
        if stored is None:
            if checkpoint.exists:
                begun = _beginnings(log, step)
                checkpoint.check_owner(owner_of(step, begun))
                checkpoint.check(step, begun, begun)
            return _new(step)
        if checkpoint.exists:
            checkpoint.check_owner(owner_of(step, stored.begun))
            checkpoint.check(step, stored.begun, stored.reached)
        return StepCheck(step.name, "unchanged", _used(step, stored, checkpoint))
    except HeadraceError as error:
        return StepCheck(step.name, "refused", "not usable", (error.message,), error)


def _used(step: Step, stored: StoredStep, checkpoint: Checkpoint) -> str:
    """The use of stored results: a checkpoint helps, but is not always needed."""
    reused = f"{_upto(stored.reached)}, reused"
    last = checkpoint.last_done() if checkpoint.exists else -1
    done = checkpoint.end_of(last) if last >= 0 else stored.begun
    if not behind(done, stored.reached):
        return reused
    if len(step.topics) > 1 and not _planned(checkpoint, last + 1, stored):
        return f"{reused}; the checkpoint is behind, which may fail with several topics"
    return f"{reused}; the checkpoint is behind, so Spark reads some rows again"


def _planned(checkpoint: Checkpoint, number: int, stored: StoredStep) -> bool:
    """True if the batch after the last one ends where the results do."""
    there = number in checkpoint.planned()
    return there and not behind(checkpoint.end_of(number), stored.reached)


def _changed(step: Step, changes: tuple[str, ...], can_rebuild: bool) -> ChangedPipeline:
    choices = [
        f"headrace rebuild MODULE:APP {step.name} recomputes it beside the live view, shows "
        "the changes, and switches",
        "headrace run --fresh recomputes everything, and publishes it again",
        "With another name it is a new step, beside this one",
    ]
    return ChangedPipeline(
        f"Step {step.name!r} has changed since its results were stored: {'; '.join(changes)}",
        hint="\n".join(choices if can_rebuild else choices[1:]),
    )


def _beginnings(log: Log, step: Step) -> dict[str, Position]:
    there = {topic.name for topic in log.topics()}
    return {topic: beginning(log, topic) for topic in step.topics if topic in there}


def _upto(reached: Positions) -> str:
    return f"up to commit {max((place.commit for place in reached.values()), default=0)}"
