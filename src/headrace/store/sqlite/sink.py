"""The sink in SQLite: a step's view, output and position in the log, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import apsw
import pyarrow as pa

from headrace.clock import micros
from headrace.errors import ChangedPipeline, PipelineError
from headrace.log import Capability, Log
from headrace.plan import metadata
from headrace.plan.batch import Payload, Shapes, Sink, StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.gaps import Gaps
from headrace.plan.law import Law
from headrace.plan.position import (
    Position,
    beginning,
    identity_of,
    last_commit,
    positions_from_json,
)
from headrace.plan.steps import Step, definition_of, fingerprint
from headrace.plan.timing import Timing
from headrace.store import changelog
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import LIVE, Database
from headrace.store.sqlite.timings import Timings
from headrace.store.topics import create_topics

_LAWS_KEPT = 1_000


class ViewSink(Sink):
    """The sink of one step."""

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        log: Log,
        step: Step,
        shapes: Shapes,
        make_keeper: Callable[[Stored], Keeper],
        *,
        changelog: bool,
        crash_point: CrashPoint,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._log = log
        self._step = step
        self._crash_point = crash_point
        changes = changelog_topic(step) if changelog else None
        self._keeper = make_keeper(Stored(step, shapes, log, changes, crash_point))
        self._create_topics(shapes.late, changes)
        self._timings = Timings(database, step.name)
        self._begun: Mapping[str, Position]
        self._reached: Mapping[str, Position]
        self._frontier: int | None
        self._law: Law
        self._gaps = Gaps(log, step.name, step.topics)
        self._enter()
        self._enter_outputs()

    def _create_topics(self, late_schema: pa.Schema | None, changes: str | None) -> None:
        create_topics(self._log, self._step, self._keeper.schema, late_schema, changes)

    @property
    def begun(self) -> Mapping[str, Position]:
        return self._begun

    @property
    def reached(self) -> Mapping[str, Position]:
        return self._reached

    @property
    def frontier(self) -> int | None:
        return self._frontier

    @property
    def generation(self) -> str:
        return self._database.generation

    @property
    def law(self) -> Law:
        """The law of all rows since the step began."""
        return self._law

    def recall(self, request: pa.Table | None = None) -> pa.Table:
        with self._database.reading() as db:
            return self._keeper.recall(db, request)

    def frontiers(self) -> Mapping[str, int]:
        with self._database.reading() as db:
            return self._keeper.frontiers(db)

    def gap(self) -> PipelineError | None:
        return self._gaps.found(self._reached)

    def store(self, batch: StepBatch[Payload]) -> Law:
        frontier = _later(self._frontier, batch.frontier)
        self._gaps.check_topics(self._reached, batch.end)
        # Stored results survive a power cut, so the commits they come from must survive it too.
        self._log.sync(last_commit(batch.end))
        with self._database.writing() as db:
            kept = self._keeper.store(db, batch, Passage(self._frontier, frontier))
            for topic in self._step.late:
                if batch.late is not None:
                    put(db, topic, batch.late)
            if batch.dead is not None:
                put(db, self._step.dead_letters, batch.dead)
            self._crash_point("stored outputs")
            law = batch.law + kept
            law.check(self._step.name)
            total = self._law + law
            self._outbox.forget_sent(db)
            self._record(db, batch, law, total, frontier)
            self._timings.write(db)
            self._crash_point("before commit")
        self._reached, self._frontier, self._law = batch.end, frontier, total
        self._crash_point("committed")
        self._outbox.send()
        return law

    def timed(self, timing: Timing, *, last: bool) -> None:
        self._timings.note(timing, last=last)

    # Bookkeeping

    def _record(
        self,
        db: apsw.Connection,
        batch: StepBatch[Payload],
        law: Law,
        total: Law,
        frontier: int | None,
    ) -> None:
        step, reached = self._step.name, _positions(batch.end)
        moment = batch.moment(self._log)
        db.execute(
            "UPDATE _headrace_step SET reached = ?, frontier = ?, law = ?, updated = ? "
            "WHERE name = ?",
            (reached, frontier, json.dumps(asdict(total)), moment, step),
        )
        db.execute(
            "INSERT INTO _headrace_law (step, reached, law) VALUES (?, ?, ?)",
            (step, reached, json.dumps(asdict(law))),
        )
        db.execute(
            "DELETE FROM _headrace_law WHERE step = ? AND id <= "
            "(SELECT max(id) FROM _headrace_law) - ?",
            (step, _LAWS_KEPT),
        )

    def _enter(self) -> None:
        """Load the step's position, or enter it as a new step."""
        step, mine = self._step, fingerprint(self._step)
        with self._database.writing() as db:
            found = list(
                db.execute(
                    "SELECT fingerprint, begun, reached, frontier, law "
                    "FROM _headrace_step "
                    "WHERE name = ?",
                    (step.name,),
                )
            )
            if not found:
                begun = {topic: beginning(self._log, topic) for topic in step.topics}
                text = _positions(begun)
                db.execute(
                    "INSERT INTO _headrace_step VALUES (?, ?, ?, ?, ?, NULL, ?, 0)",
                    (
                        step.name, mine, json.dumps(_as_stored(step)), text, text,
                        json.dumps(asdict(Law())),
                    ),
                )  # fmt: skip
                self._keeper.create(db)
                self._enter_view(db)
                found = [(mine, text, text, None, json.dumps(asdict(Law())))]
        ((theirs, begun_text, reached, frontier, law),) = found
        if theirs != mine:
            raise ChangedPipeline(
                f"Step {step.name!r} has stored results of another declaration",
                hint="Give it another name, or recompute everything from the log with --fresh. "
                "headrace run --check shows what has changed",
            )
        self._begun = positions_from_json(str(begun_text))
        self._reached = positions_from_json(str(reached))
        self._gaps.check(self._reached)
        if Capability.COMMITS in self._log.capabilities:
            self._adopt()
        self._frontier = None if frontier is None else int(str(frontier))
        self._law = Law(**json.loads(str(law)))

    def _adopt(self) -> None:
        """Add topic ids to positions that were stored before topics had any."""
        if all(place.id is not None for place in self._reached.values()):
            return
        self._reached = {
            topic: Position(place.commit, place.offsets, *identity_of(self._log, topic))
            for topic, place in self._reached.items()
        }
        with self._database.writing() as db:
            db.execute(
                "UPDATE _headrace_step SET reached = ? WHERE name = ?",
                (_positions(self._reached), self._step.name),
            )

    def _enter_outputs(self) -> None:
        with self._database.writing() as db:
            waiting = {str(topic) for (topic,) in db.execute("SELECT topic FROM _headrace_outbox")}
            spoken = [
                topic
                for topic in self._step.outputs
                if topic in waiting or any(p.end for p in self._log.topic(topic).partitions)
            ]
            self._keeper.enter(db, self._frontier, spoken)

    def _enter_view(self, db: apsw.Connection) -> None:
        view, known = self._step.view, self._keeper.view_terms
        if view is None:
            return
        terms: tuple[str, int, int] = (LIVE, 0, 0)
        if known is not None:
            terms = (known.emit, micros(known.delay), micros(known.grace))
        columns = [[f.name, str(f.type)] for f in self._keeper.schema if f.name != metadata.ROWS]
        db.execute(
            "INSERT INTO _headrace_view VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                view.name, self._step.name, json.dumps(view.key), json.dumps(columns), *terms,
            ),
        )  # fmt: skip


def changelog_topic(step: Step) -> str | None:
    """The changelog of a step's view, if it has one."""
    return changelog.topic_of(step.app, step.view.name) if step.view is not None else None


def _as_stored(step: Step) -> dict[str, Any]:
    """The definition of a step, as JSON gives it back."""
    stored: dict[str, Any] = json.loads(json.dumps(definition_of(step)))
    return stored


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _positions(positions: Mapping[str, Position]) -> str:
    return json.dumps({topic: position.to_json() for topic, position in positions.items()})
