"""The sink in SQLite: a step's view, output and position in the log, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

import apsw
import pyarrow as pa

from headrace.clock import micros
from headrace.errors import ChangedPipeline, PipelineError
from headrace.log import Log
from headrace.plan import metadata
from headrace.plan.batch import Payload, Shapes, Sink, StepBatch, Timing
from headrace.plan.crash_points import CrashPoint
from headrace.plan.gaps import Gaps
from headrace.plan.law import Law
from headrace.plan.position import (
    Position,
    Positions,
    beginning,
    identity_of,
    last_commit,
    positions_from_json,
)
from headrace.plan.steps import Step, definition_of, fingerprints
from headrace.store import changelog
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import Database
from headrace.store.topics import create_topics

_KEPT = 200

_TABLE = """
CREATE TABLE IF NOT EXISTS _headrace_timing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    step TEXT NOT NULL,
    timing TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS _headrace_timing_by_step ON _headrace_timing (step, id);
"""


class Timings:
    """The timings of one step's last batches, kept beside the law.

    They are written with the next transaction; the last at once. An older database lacks the table:
    a run adds it without changing the format, so readers must expect databases without it.
    """

    def __init__(self, database: Database, step: str) -> None:
        self._database = database
        self._step = step
        self._waiting: list[Timing] = []
        with database.writing() as db:
            db.execute(_TABLE)

    def note(self, timing: Timing, *, last: bool) -> None:
        """Keep a timing; write it at once if it is the last."""
        self._waiting.append(timing)
        if last:
            with self._database.writing() as db:
                self.write(db)

    def write(self, db: apsw.Connection) -> None:
        """Write the waiting timings, in a transaction, and delete old ones."""
        for timing in self._waiting:
            db.execute(
                "INSERT INTO _headrace_timing (step, timing) VALUES (?, ?)",
                (self._step, json.dumps(asdict(timing))),
            )
        self._waiting.clear()
        db.execute(
            "DELETE FROM _headrace_timing WHERE step = ? AND id <= (SELECT id FROM "
            "_headrace_timing WHERE step = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (self._step, self._step, _KEPT),
        )


_LAWS_KEPT = 1_000


class ViewSink(Sink):
    """The sink of one step."""

    law: Law
    """The law of all rows since the step began."""

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
        self.generation = database.generation
        self._outbox = outbox
        self._log = log
        self._step = step
        self._crash_point = crash_point
        changes = changelog_topic(step) if changelog else None
        self._keeper = make_keeper(Stored(step, shapes, log, changes, crash_point))
        self._create_topics(shapes.late, changes)
        self._timings = Timings(database, step.name)
        self._gaps = Gaps(log, step.name, step.topics)
        self._enter()
        self._enter_outputs()

    def _create_topics(self, late_schema: pa.Schema | None, changes: str | None) -> None:
        create_topics(self._log, self._step, self._keeper.schema, late_schema, changes)

    def recall(self, request: pa.Table | None = None) -> pa.Table:
        with self._database.reading() as db:
            return self._keeper.recall(db, request)

    def frontiers(self) -> Mapping[str, int]:
        with self._database.reading() as db:
            return self._keeper.frontiers(db)

    def gap(self) -> PipelineError | None:
        return self._gaps.found(self.reached)

    def store(self, batch: StepBatch[Payload]) -> Law:
        frontier = _later(self.frontier, batch.frontier)
        self._gaps.check_topics(self.reached, batch.end)
        # Stored results survive a power cut, so the commits they come from must survive it too.
        self._log.sync(last_commit(batch.end))
        with self._database.writing() as db:
            kept = self._keeper.store(db, batch, Passage(self.frontier, frontier))
            for topic in self._step.late:
                if batch.late is not None:
                    put(db, topic, batch.late)
            if batch.dead is not None:
                put(db, self._step.dead_letters, batch.dead)
            self._crash_point("stored outputs")
            law = batch.law + kept
            law.check(self._step.name)
            total = self.law + law
            self._outbox.forget_sent(db)
            self._record(db, batch, law, total, frontier)
            self._timings.write(db)
            self._crash_point("before commit")
        self.reached, self.frontier, self.law = batch.end, frontier, total
        self._crash_point("committed")
        self._outbox.send()
        self.pass_on_time()
        return law

    def pass_on_time(self) -> None:
        """Let the next step of a chain know that no earlier rows will come, when all are sent."""
        topic, behind = self._step.passes_on, self._step.stream.holds_back
        if topic is not None and behind is not None and self.frontier is not None:
            self._outbox.advance(topic.name, self.frontier - micros(behind))

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
        step, known = self._step, fingerprints(self._step)
        mine = known[0]
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
                begun = {topic: self._beginning(topic) for topic in step.topics}
                text = _positions(begun)
                db.execute(
                    "INSERT INTO _headrace_step VALUES (?, ?, ?, ?, ?, NULL, ?, 0)",
                    (
                        step.name, mine, json.dumps(definition_of(step)), text, text,
                        json.dumps(asdict(Law())),
                    ),
                )  # fmt: skip
                self._keeper.create(db)
                self._enter_view(db)
                found = [(mine, text, text, None, json.dumps(asdict(Law())))]
        ((theirs, begun_text, reached, frontier, law),) = found
        if theirs not in known:
            raise ChangedPipeline(
                f"Step {step.name!r} has stored results of another declaration",
                hint="Give it another name, or recompute everything from the log with --fresh. "
                "headrace run --check shows what has changed",
            )
        if theirs != mine:
            with self._database.writing() as db:
                db.execute(
                    "UPDATE _headrace_step SET fingerprint = ?, definition = ? WHERE name = ?",
                    (mine, json.dumps(definition_of(step)), step.name),
                )
        self.begun = positions_from_json(str(begun_text))
        self.reached = positions_from_json(str(reached))
        self._gaps.check(self.reached)
        self._adopt()
        self.frontier = None if frontier is None else int(str(frontier))
        self.law = Law(**json.loads(str(law)))

    def _beginning(self, topic: str) -> Position:
        """The position at which a new step begins to read a topic."""
        return beginning(self._log, topic)

    def _adopt(self) -> None:
        """Add topic ids to positions that were stored before topics had any."""
        if all(place.id is not None for place in self.reached.values()):
            return
        if self._log.judges_rows:
            raise PipelineError(
                f"Step {self._step.name!r} has results of an earlier version of headrace, which "
                "had no commits on Kafka",
                hint="headrace run --fresh computes everything from the topics as they are now. "
                "With another name, the application is a new one, beside this one",
            )
        self.reached = {
            topic: Position(place.commit, place.offsets, *identity_of(self._log, topic))
            for topic, place in self.reached.items()
        }
        with self._database.writing() as db:
            db.execute(
                "UPDATE _headrace_step SET reached = ? WHERE name = ?",
                (_positions(self.reached), self._step.name),
            )

    def _enter_outputs(self) -> None:
        with self._database.writing() as db:
            waiting = {str(topic) for (topic,) in db.execute("SELECT topic FROM _headrace_outbox")}
            spoken = [
                topic
                for topic in self._step.outputs
                if topic in waiting or any(p.end for p in self._log.topic(topic).partitions)
            ]
            self._keeper.enter(db, self.frontier, spoken)

    def _enter_view(self, db: apsw.Connection) -> None:
        view = self._step.view
        if view is None:
            return
        columns = [[f.name, str(f.type)] for f in self._keeper.schema if f.name != metadata.ROWS]
        db.execute(
            "INSERT INTO _headrace_view VALUES (?, ?, ?, ?, ?, ?, ?)",
            (view.name, self._step.name, json.dumps(view.key), json.dumps(columns),
             *self._keeper.view_terms),
        )  # fmt: skip


def changelog_topic(step: Step) -> str | None:
    """The changelog of a step's view, if it has one."""
    return changelog.topic_of(step.app, step.view.name) if step.view is not None else None


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _positions(positions: Positions) -> str:
    return json.dumps({topic: position.to_json() for topic, position in positions.items()})
