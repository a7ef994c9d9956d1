"""Replace the live version of a view with one that was built beside it.

First the results, in one transaction of the live database, then the checkpoint. In between, a note
in the database says so, and the next run or rebuild finishes the switch. This order is safe: the
old results are all there or all replaced, and moving a checkpoint can be repeated until the note is
gone.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pyarrow as pa

from headrace.log import Log
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.steps import Step
from headrace.store import changelog
from headrace.store.location import build_place, checkpoint_of, database_of
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import OWN_TABLES, PREFIX, Database, rows_of, slots_of
from headrace.store.sqlite.difference import Comparison, version_in
from headrace.store.sqlite.stored import SWITCHES, stored_steps, switched_in
from headrace.store.sqlite.values import quoted, tables_from

_BUILT = "built"


def take_over(log: Log, step: Step, schema: pa.Schema, topic: str, crash_point: CrashPoint) -> None:
    """Switch a step to its built version, and bring its changelog, `topic`, up to date."""
    place = build_place(log.home, step.app, step.name)
    with contextlib.ExitStack() as stack:
        path = database_of(log.home, step.app)
        database = stack.enter_context(contextlib.closing(Database(path, step.app)))
        producer = stack.enter_context(log.producer(id=f"{step.app}.{database.generation}"))
        outbox = Outbox(database, log, producer, crash_point)
        outbox.send()  # what a crash left: the changelog's content decides what it needs
        logged = any(state.end for state in log.topic(topic).partitions)
        with attached(database, place.database):
            switch(database, step, schema, topic, logged=logged, crash_point=crash_point)
        finish_switches(log.home, step.app, crash_point)
        outbox.send()


@contextlib.contextmanager
def attached(database: Database, built: Path) -> Iterator[None]:
    """Attach the built version to the live database."""
    # In one block: a connection that is reopened has nothing attached.
    with database.reading() as db:
        db.execute(f"ATTACH ? AS {_BUILT}", (str(built),))
        try:
            yield
        finally:
            db.execute(f"DETACH {_BUILT}")


def switch(
    database: Database,
    step: Step,
    schema: pa.Schema,
    topic: str,
    *,
    logged: bool,
    crash_point: CrashPoint,
) -> None:
    """Replace the live version of a step's view with the attached one, in a transaction.

    The outbox gets the differences if the changelog has rows (`logged`), else every row.
    """
    with database.writing() as db:
        _announce(db, step, schema, topic, logged=logged)
        _drop(db, step.name)
        _copy(db, step.name)
        db.execute(f"CREATE TABLE IF NOT EXISTS {SWITCHES} (step TEXT PRIMARY KEY)")
        db.execute(f"INSERT OR IGNORE INTO {SWITCHES} VALUES (?)", (step.name,))
        crash_point("before switch")
    crash_point("switched")


def finish_switches(url: str, app: str, crash_point: CrashPoint = nothing) -> None:
    """Move the checkpoints of steps whose results are switched, if there are any."""
    path = database_of(url, app)
    if not (steps := switched_in(path)):
        return
    with contextlib.closing(Database(path, app)) as database:
        for step in sorted(steps):
            place, live = build_place(url, app, step), checkpoint_of(url, app, step)
            if place.checkpoint.exists():
                shutil.rmtree(live, ignore_errors=True)
                crash_point("checkpoint removed")
                live.parent.mkdir(parents=True, exist_ok=True)
                place.checkpoint.rename(live)
            crash_point("checkpoint moved")
            shutil.rmtree(place.folder, ignore_errors=True)
            crash_point("place cleared")
            with database.writing() as db:
                db.execute(f"DELETE FROM {SWITCHES} WHERE step = ?", (step,))
            crash_point("switch finished")


def _announce(
    db: apsw.Connection, step: Step, schema: pa.Schema, topic: str, *, logged: bool
) -> None:
    """Put the changes for readers of the changelog into the outbox."""
    view, built = step.view, version_in(db, _BUILT, step.name)
    assert view is not None
    assert built is not None
    live = version_in(db, "main", step.name) if logged else None
    comparison = Comparison(db, live, built)
    names = schema.names
    moment = stored_steps(db, _BUILT)[step.name].updated // 1_000
    who = (step.app, view.name)
    if live is not None:
        gone = comparison.stored("removed", names)
        for rows in tables_from(gone, schema):
            put(db, topic, changelog.deletions(*who, live.key, rows, moment))
        both = pa.schema([*schema, *(f.with_name(f"{f.name} before") for f in schema)])
        for rows in tables_from(comparison.stored("changed", names), both):
            now = rows.select(names)
            before = rows.select(both.names[len(names) :]).rename_columns(names)
            put(db, topic, changelog.changes(*who, view.key, now, before, moment))
    for rows in tables_from(comparison.stored("added", names), schema):
        put(db, topic, changelog.changes(*who, view.key, rows, None, moment))


def _drop(db: apsw.Connection, step: str) -> None:
    """Remove everything of a step."""
    steps = [str(name) for (name,) in db.execute("SELECT name FROM main._headrace_step")]
    for (view,) in list(db.execute("SELECT name FROM main._headrace_view WHERE step = ?", (step,))):
        db.execute(f"DROP VIEW IF EXISTS main.{quoted(str(view))}")
    db.execute(f"DROP VIEW IF EXISTS main.{quoted(rows_of(step))}")
    tables = db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")
    for table in {str(name) for (name,) in tables} - OWN_TABLES - {SWITCHES}:
        # The name of one step may end with that of another.
        whose = [s for s in steps if table.startswith(PREFIX) and table.endswith(f"_{s}")]
        if table == slots_of(step) or max(whose, key=len, default=None) == step:
            db.execute(f"DROP TABLE main.{quoted(table)}")
    db.execute("DELETE FROM main._headrace_view WHERE step = ?", (step,))
    db.execute("DELETE FROM main._headrace_law WHERE step = ?", (step,))
    db.execute("DELETE FROM main._headrace_step WHERE name = ?", (step,))


def _copy(db: apsw.Connection, step: str) -> None:
    """Copy everything of the attached database's only step."""
    made = list(
        db.execute(
            f"SELECT type, name, sql FROM {_BUILT}.sqlite_schema WHERE sql IS NOT NULL "
            "AND name NOT IN (SELECT name FROM main.sqlite_schema) AND name NOT LIKE 'sqlite_%' "
            "ORDER BY type = 'view', type = 'index'"
        )
    )
    for kind, name, sql in made:
        db.execute(str(sql))
        if kind == "table":
            table = quoted(str(name))
            db.execute(f"INSERT INTO main.{table} SELECT * FROM {_BUILT}.{table}")
    for table in ("step", "view"):
        db.execute(f"INSERT INTO main.{PREFIX}{table} SELECT * FROM {_BUILT}.{PREFIX}{table}")
    db.execute(
        f"INSERT INTO main.{PREFIX}law (step, reached, law) "
        f"SELECT step, reached, law FROM {_BUILT}.{PREFIX}law WHERE step = ? ORDER BY id",
        (step,),
    )
