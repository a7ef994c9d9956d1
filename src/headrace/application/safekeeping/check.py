"""Check a log for damage, and its views against it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import apsw

from headrace.errors import LogError
from headrace.log import Flaw, check_log, log_ends
from headrace.log.state import Tell
from headrace.plan.law import Law
from headrace.plan.position import positions_from_json
from headrace.store import open_views
from headrace.store.location import database_of
from headrace.store.sqlite.stored import reading

_AGAIN = "Recompute it from the log: headrace run --fresh"


def check(folder: Path, tell: Tell) -> list[Flaw]:
    """The flaws of a log and of its views. Nothing is changed."""
    views = check_views(folder)  # views first, since the log may grow meanwhile
    return [*check_log(folder, tell), *views]


def check_views(folder: Path) -> list[Flaw]:
    """The flaws of the views of a log."""
    url, found = f"file:{folder}", []
    with open_views(url) as views:
        for path, reason in views.skipped().items():
            found.append(Flaw(path.name, reason, f"Move it away. If it held views: {_AGAIN}"))
        for app in views.apps():
            path = database_of(url, app)
            try:
                with reading(path) as db:
                    found += [Flaw(path.name, text, _AGAIN) for text in _of_views(db, folder)]
            except apsw.Error as error:
                found.append(Flaw(path.name, str(error), _AGAIN))
    return found


def _of_views(db: apsw.Connection, folder: Path) -> Iterator[str]:
    said = [str(line) for (line,) in db.execute("PRAGMA integrity_check(10)")]
    if said != ["ok"]:
        yield from said
        return
    steps = list(db.execute("SELECT name, reached, law FROM _headrace_step"))
    for name, reached, law in steps:
        account = Law(**json.loads(str(law)))
        if not account.holds:
            yield f"step {name!r} cannot account for every row: {account}"
        yield from _ahead(str(name), str(reached), folder)
    last = db.execute("SELECT max(sequence) FROM _headrace_outbox").get
    if last is not None and int(last) >= int(db.execute("SELECT * FROM _headrace_outbox_end").get):
        yield "its outbox holds entries after its end"


def _ahead(step: str, reached: str, folder: Path) -> Iterator[str]:
    """The problem, for each topic of which a step has read more than the log has."""
    try:
        head, ends = log_ends(folder)
    except LogError:
        return  # `check_log` reports it
    for topic, position in positions_from_json(reached).items():
        known = ends.get(topic, {})
        beyond = any(offset > known.get(p, offset) for p, offset in enumerate(position.offsets))
        if position.commit > head or beyond:
            yield (
                f"step {step!r} has read topic {topic!r} up to commit {position.commit}, but the "
                f"log ends with commit {head}: the log is older than the view"
            )
