"""Keeps a step's results in SQLite: its view, its outputs and its place in the log, all at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.engine import places
from headrace.engine.crash import Reach
from headrace.engine.law import Law
from headrace.engine.position import Position, beginning
from headrace.engine.sink import Portion, Sink
from headrace.engine.steps import Step, definition_of, differences, fingerprint
from headrace.engine.timing import Timing
from headrace.errors import ChangedPipeline
from headrace.log import Log
from headrace.views import changelog
from headrace.views.alone import JoinKeeper
from headrace.views.database import Database
from headrace.views.keeping import OutcomeKeeper
from headrace.views.outbox import Outbox, put
from headrace.views.publishing import Publisher
from headrace.views.sessions import OpenSessions
from headrace.views.slots import SlotTable
from headrace.views.table import PaneTable, without
from headrace.views.telling import Passage, Turn
from headrace.views.timings import Timings
from headrace.views.topics import create_topics

_LAWS_KEPT = 1_000


class ViewSink(Sink):
    """Where one step's results go."""

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        log: Log,
        step: Step,
        schema: pa.Schema,
        late_schema: pa.Schema | None,
        session_schema: pa.Schema | None,
        *,
        changelog: bool,
        reach: Reach,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._log = log
        self._step = step
        self._reach = reach
        self._table = PaneTable(step, schema) if step.aggregation is not None else None
        self._sessions = OpenSessions(step, session_schema) if session_schema is not None else None
        self._joins = JoinKeeper(step, schema, log) if step.join is not None else None
        self._outcomes = OutcomeKeeper(step, log) if step.stateful is not None else None
        self._slots = SlotTable(step, self._table) if self._table and step.top else None
        self._shown = self._slots or self._table
        told = changelog_topic(step) if changelog else None
        self._publisher = Publisher(step, told, self._shown) if self._shown else None
        self._schema = self._shown.schema if self._shown else schema
        self._create_topics(late_schema, told)
        self._timings = Timings(database, step.name)
        self._begun: Mapping[str, Position]
        self._reached: Mapping[str, Position]
        self._frontier: int | None
        self._law: Law
        self._enter()
        self._enter_outputs()

    def _create_topics(self, late_schema: pa.Schema | None, changes: str | None) -> None:
        create_topics(self._log, self._step, self._schema, late_schema, changes)

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
    def law(self) -> Law:
        """What became of all rows since the step began."""
        return self._law

    def overlapping(self, sessions: pa.Table) -> pa.Table:
        assert self._sessions is not None
        with self._database.reading() as db:
            return self._sessions.overlapping(db, sessions)

    def store(self, portion: Portion) -> Law:
        with self._database.writing() as db:
            counted = self._store_rows(db, portion)
            failed = self._store_failed(db, portion)
            for topic in self._step.late:
                if portion.late is not None:
                    put(db, topic, portion.late)
            if portion.dead is not None:
                put(db, self._step.dead_letters, portion.dead)
            self._reach("stored outputs")
            # What failed was counted when it came, and is a dead letter from now on.
            law = portion.law + Law(counted=counted - failed, dead=failed, pairs=-failed)
            law.check(self._step.name)
            total = self._law + law
            frontier = _later(self._frontier, portion.frontier)
            self._outbox.forget_sent(db)
            self._record(db, portion, law, total, frontier)
            self._timings.write(db)
            self._reach("before commit")
        self._reached, self._frontier, self._law = portion.end, frontier, total
        self._reach("committed")
        self._outbox.send()
        return law

    def timed(self, timing: Timing, *, last: bool) -> None:
        self._timings.note(timing, last=last)

    # Rows

    def _store_rows(self, db: apsw.Connection, portion: Portion) -> int:
        """Store results and what is to be published of them; returns how many rows they count."""
        if self._joins is not None:
            assert portion.joined is not None
            self._joins.store(db, portion.joined.rows, portion.end)
            self._reach("stored panes")
            return portion.joined.taken
        if self._outcomes is not None:
            assert portion.outcome is not None
            self._outcomes.store(db, portion.outcome)
            self._reach("stored panes")
            return portion.outcome.taken
        publisher, shown = self._publisher, self._shown
        if self._table is None or shown is None or publisher is None:
            (topic,) = self._step.outputs
            stored = put(db, topic, portion.rows)
            self._reach("stored panes")
            return stored
        assert self._step.aggregation is not None
        turn = self._turn(portion.frontier, self._log.commit_time(_newest(portion)))
        updates = self._step.aggregation.emit == "updates"
        counted = self._replace_sessions(db, portion, turn)
        remember = updates and publisher.wanted and self._slots is None
        for rows in self._table.slices(portion.rows):
            merged = self._table.merge(db, rows, remember=remember)
            counted += merged.counted
            if merged.before is not None:
                changed = changelog.changed_rows(rows, merged.before)
                publisher.updates(db, rows.filter(changed), merged.before.filter(changed), turn)
            if self._slots is not None:
                self._slots.touch(db, rows)
        if self._slots is not None:
            ranked = self._slots.rank(db, turn)
            self._table.forget(db, turn.closed.after)
            if updates:
                publisher.retracted(db, ranked.gone, turn)
                publisher.updates(db, ranked.rows, ranked.before, turn)
        self._reach("stored panes")
        if updates:
            publisher.fired(db, shown.ended(db, *turn.watermark.span), turn)
            publisher.settle(db, turn)
        else:
            publisher.final(db, shown.ended(db, *turn.closed.span), turn)
        return counted

    def _store_failed(self, db: apsw.Connection, portion: Portion) -> int:
        """Publish the rows that the user's function failed for; returns how many there are."""
        if self._outcomes is None or portion.outcome is None:
            return 0
        return self._outcomes.store_failed(db, portion.outcome)

    def _turn(self, frontier: int | None, now: int) -> Turn:
        """What it means for windows that the frontier has come so far."""
        aggregation = self._step.aggregation
        assert aggregation is not None
        passage = Passage(self._frontier, _later(self._frontier, frontier))
        watermark = passage.less(micros(aggregation.lateness.delay))
        settled = micros(aggregation.lateness.grace + aggregation.window.settles)
        return Turn(watermark, watermark.less(settled), now)

    def _replace_sessions(self, db: apsw.Connection, portion: Portion, turn: Turn) -> int:
        """Keep the open sessions, and take away what is now part of others; returns minus its rows.

        What a session was before it grew stays in the table under its key, and is merged with.
        """
        if self._sessions is None or portion.sessions is None:
            return 0
        parts, replaced = portion.sessions.parts, portion.sessions.replaced
        assert self._table is not None
        assert self._publisher is not None
        assert self._step.aggregation is not None
        self._sessions.replace(db, replaced, parts)
        self._sessions.forget(db, turn.closed.after)
        gone = self._table.remove(db, without(replaced, portion.rows, self._table.key))
        if self._slots is not None:
            self._slots.touch(db, gone)
        elif self._step.aggregation.emit == "updates":
            self._publisher.retracted(db, gone, turn)
        return -(pc.sum(gone.column(places.ROWS)).as_py() or 0)

    # Bookkeeping

    def _record(
        self, db: apsw.Connection, portion: Portion, law: Law, total: Law, frontier: int | None
    ) -> None:
        step, reached = self._step.name, _positions(portion.end)
        moment = self._log.commit_time(_newest(portion))
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
        """Find where the step is, or enter it as a new one."""
        step, mine = self._step, fingerprint(self._step)
        with self._database.writing() as db:
            found = list(
                db.execute(
                    "SELECT fingerprint, definition, begun, reached, frontier, law "
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
                if self._table is not None:
                    self._table.create(db)
                    if self._slots is not None:
                        self._slots.create(db)
                if self._sessions is not None:
                    self._sessions.create(db)
                if self._joins is not None:
                    self._joins.create(db)
                self._enter_view(db)
                found = [(mine, "", text, text, None, json.dumps(asdict(Law())))]
        ((theirs, definition, begun_text, reached, frontier, law),) = found
        if theirs != mine:
            changes = differences(json.loads(str(definition)), _as_stored(step))
            raise ChangedPipeline(
                f"Step {step.name!r} has stored results of another declaration than this one: "
                f"{'; '.join(changes)}",
                hint="Give it another name, or run it with --fresh: then everything is computed "
                "again from the log",
            )
        self._begun = _read_positions(str(begun_text))
        self._reached = _read_positions(str(reached))
        self._frontier = None if frontier is None else int(str(frontier))
        self._law = Law(**json.loads(str(law)))

    def _enter_outputs(self) -> None:
        """Make ready what is remembered of the outputs, which may have wanted less before."""
        if self._publisher is None:
            return
        with self._database.writing() as db:
            waiting = {str(topic) for (topic,) in db.execute("SELECT topic FROM _headrace_outbox")}
            spoken = [
                topic
                for topic in self._step.outputs
                if topic in waiting or any(p.end for p in self._log.topic(topic).partitions)
            ]
            self._publisher.enter(db, self._turn(self._frontier, 0).closed.after, spoken)

    def _enter_view(self, db: apsw.Connection) -> None:
        view, aggregation = self._step.view, self._step.aggregation
        if view is None or aggregation is None or self._shown is None:
            return
        columns = [[f.name, str(f.type)] for f in self._shown.schema if f.name != places.ROWS]
        db.execute(
            "INSERT INTO _headrace_view VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                view.name, self._step.name, json.dumps(view.key), json.dumps(columns),
                aggregation.emit, micros(aggregation.lateness.delay),
                micros(aggregation.lateness.grace),
            ),
        )  # fmt: skip


def changelog_topic(step: Step) -> str | None:
    """The changelog of a step's view, if it has one."""
    return changelog.topic_of(step.app, step.view.name) if step.view is not None else None


def _as_stored(step: Step) -> dict[str, Any]:
    """What a step computes, as plain data that JSON gives back as it was."""
    told: dict[str, Any] = json.loads(json.dumps(definition_of(step)))
    return told


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _newest(portion: Portion) -> int:
    return max(position.commit for position in portion.end.values())


def _positions(positions: Mapping[str, Position]) -> str:
    return json.dumps({topic: position.to_json() for topic, position in positions.items()})


def _read_positions(text: str) -> dict[str, Position]:
    return {topic: Position.from_json(data) for topic, data in json.loads(text).items()}
