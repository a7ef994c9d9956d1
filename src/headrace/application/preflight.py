"""What a run would find, told before Spark is started. Nothing is changed by looking.

hr.preflight(app, "file:./data").require()
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import ChangedPipeline, HeadraceError, NotALog
from headrace.language.differences import differences
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.pipeline.app import App
from headrace.plan.gaps import Gaps
from headrace.plan.inputs import check_topics
from headrace.plan.position import Position, beginning, behind
from headrace.plan.steps import Step, definition_of, fingerprint, steps_of
from headrace.runtime.checkpoint import Checkpoint, owner_of
from headrace.store.location import build_place, checkpoint_of, database_of
from headrace.store.sqlite.stored import StoredStep, steps_in, switched_in

__all__ = ["Preflight", "StepCheck", "preflight"]

Status = Literal["unchanged", "new", "changed", "undeclared", "refused"]


@dataclass(frozen=True)
class StepCheck:
    """What is stored of a step, beside what is declared.

    `changed` is a step with results of another declaration, `undeclared` one that is declared no
    more, and `refused` one that cannot go on for another reason, which `error` has.
    """

    step: str
    status: Status
    saved: str
    """What becomes of the results and the state that were stored."""
    changes: tuple[str, ...] = ()
    error: HeadraceError | None = None


@dataclass(frozen=True)
class Preflight:
    """What is to be known of every step before an application runs."""

    app: str
    steps: tuple[StepCheck, ...]
    first: bool
    """Nothing of the application is stored yet."""

    @property
    def ok(self) -> bool:
        """Whether a run would go on from what is stored."""
        return all(step.error is None for step in self.steps)

    @property
    def news(self) -> tuple[StepCheck, ...]:
        """The steps with which something is another than at the last run, if there was one."""
        return tuple(s for s in self.steps if not self.first and s.status != "unchanged")

    def require(self) -> None:
        """Return if a run would go on from what is stored; raise why not."""
        changed = [s.error for s in self.steps if s.status == "changed" and s.error is not None]
        if changed:
            hints = dict.fromkeys(line for e in changed for line in e.hint.splitlines())
            raise ChangedPipeline("; ".join(e.message for e in changed), hint="\n".join(hints))
        for step in self.steps:
            if step.error is not None:
                raise step.error


def preflight(app: App, log: str | Log | None = None) -> Preflight:
    """What a run of an application would find. It starts no Spark and makes nothing, nor a log."""
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
        found = [
            _check(there, step, stored.get(step.name), step.name in switched) for step in steps
        ]
        declared = {step.name for step in steps}
        left = [
            StepCheck(name, "undeclared", "stays as it is, and is not kept up to date")
            for name in stored
            if name not in declared
        ]
        return Preflight(app.name, (*found, *left), not stored)


def _new(step: Step) -> StepCheck:
    return StepCheck(step.name, "new", "nothing yet; it is computed from the start of the log")


def _check(log: Log, step: Step, stored: StoredStep | None, switched: bool) -> StepCheck:
    if stored is not None and stored.fingerprint != fingerprint(step):
        changes = tuple(differences(stored.definition, _as_stored(step)))
        saved = f"cannot be used, {_upto(stored.reached)}"
        return StepCheck(step.name, "changed", saved, changes, _changed(step, changes))
    try:
        check_topics(log, step)
        if stored is not None and Capability.COMMITS in log.capabilities:
            Gaps(log, step.name, stored.reached).check(stored.reached)
        if not step.stream.has_checkpoint:
            if stored is None:
                return _new(step)
            return StepCheck(step.name, "unchanged", f"is used, {_upto(stored.reached)}")
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
        return StepCheck(step.name, "refused", "cannot be used as it is", (error.message,), error)


def _used(step: Step, stored: StoredStep, checkpoint: Checkpoint) -> str:
    """How results are gone on with, for which a checkpoint is of use and not always needed."""
    told = f"is used, {_upto(stored.reached)}"
    last = checkpoint.last_done() if checkpoint.exists else -1
    done = checkpoint.end_of(last) if last >= 0 else stored.begun
    if not behind(done, stored.reached):
        return told
    if len(step.topics) > 1 and not _planned(checkpoint, last + 1, stored):
        return f"{told}; its checkpoint is behind, and with several topics that may not do"
    return f"{told}; its checkpoint is behind, so Spark reads again what it has not"


def _planned(checkpoint: Checkpoint, number: int, stored: StoredStep) -> bool:
    """Whether the batch after the last one ends where the results do."""
    there = (checkpoint.path / "offsets" / str(number)).exists()
    return there and not behind(checkpoint.end_of(number), stored.reached)


def _changed(step: Step, changes: tuple[str, ...]) -> ChangedPipeline:
    choices = [
        f"headrace rebuild MODULE:APP {step.name} computes it beside the live view, shows what "
        "changes, and switches",
        "headrace run --fresh computes everything again, and publishes it again",
        "Under another name it is another step, beside this one",
    ]
    return ChangedPipeline(
        f"Step {step.name!r} has stored results of another declaration than this one: "
        f"{'; '.join(changes)}",
        hint="\n".join(choices if step.view is not None else choices[1:]),
    )


def _beginnings(log: Log, step: Step) -> dict[str, Position]:
    there = {topic.name for topic in log.topics()}
    return {topic: beginning(log, topic) for topic in step.topics if topic in there}


def _as_stored(step: Step) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(definition_of(step)))
    return told


def _upto(reached: Mapping[str, Position]) -> str:
    return f"up to commit {max((place.commit for place in reached.values()), default=0)}"
