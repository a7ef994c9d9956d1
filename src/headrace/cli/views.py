"""`headrace views`: the results of applications."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app, show_help
from headrace.cli.output import show_json
from headrace.cli.view_tables import (
    row_json,
    show_rows,
    show_view,
    show_views,
    tell_more,
    view_json,
)
from headrace.log import open_log
from headrace.log.home import DEFAULT_STATE, STATE
from headrace.store import Result, Views, open_views
from headrace.store.location import known_folder, views_folder
from headrace.wording import many

app = new_app()

_KAFKA = "kafka:"

OfApp = Annotated[
    str | None, typer.Option("--app", metavar="APP", help="Only the views of this application.")
]
Limit = Annotated[
    int,
    typer.Option("--limit", "-n", metavar="N", min=0, help="Maximum number of rows, 0 for all."),
]
View = Annotated[
    str,
    typer.Argument(
        metavar="VIEW", help="The view, or APP.VIEW if several have it.", show_default=False
    ),
]


@app.callback(invoke_without_command=True)
def views(ctx: typer.Context) -> None:
    """List, show, query and export the views of a log."""
    show_help(ctx)


@app.command("list")
def list_views(log: LogUrl = DEFAULT_LOG, of: OfApp = None, json: AsJson = False) -> None:
    """List the views of a log. With --json, one object per line."""
    with _opened(log, of) as opened:
        states, folder = opened.list(), opened.folder
    if json:
        for state in states:
            show_json(view_json(state))
    elif not states:
        say(f"There are no views{f' of {of}' if of else ''} in {folder}")
        say("  → 'headrace run MODULE:APP' creates those of an application" + _elsewhere(log))
    else:
        show_views(states)


@app.command("show")
def show(
    view: View,
    *,
    limit: Limit = 20,
    log: LogUrl = DEFAULT_LOG,
    of: OfApp = None,
    json: AsJson = False,
) -> None:
    """Show the rows of a view, latest windows first.

    Column _state is open (the window has not ended), fired (late rows may still change the row) or
    final. With --json, one object per row.
    """
    with _opened(log, of) as opened:
        state = opened.state(view)
        found = opened.newest(view, limit or None)
    if not json:
        show_view(state)
    _show_rows(found, json, f"; headrace views export {view} --to FILE.parquet writes them all")


@app.command("query")
def query(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="One SELECT in SQLite's dialect.", show_default=False),
    ],
    *,
    limit: Limit = 1_000,
    seconds: Annotated[
        float, typer.Option(metavar="N", min=0.01, help="Time limit in seconds.")
    ] = 30.0,
    log: LogUrl = DEFAULT_LOG,
    of: OfApp = None,
    json: AsJson = False,
) -> None:
    """Query views with read-only SQL.

    A query may use 256 MiB of memory, and run for about --seconds.

    Each view is a table of its name; if two applications have a view of that name, write
    "application".view. With --json, one object per row.
    """
    with _opened(log, of) as opened:
        found = opened.query(sql, limit=limit or None, seconds=seconds)
    _show_rows(found, json)


@app.command("export")
def export(
    view: View,
    *,
    to: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file: .parquet, .arrow or .csv", show_default=False),
    ],
    log: LogUrl = DEFAULT_LOG,
    of: OfApp = None,
    json: AsJson = False,
) -> None:
    """Write every row of a view to a file, with the view's types.

    The file is a snapshot, ordered by key. It replaces an existing file once it is complete.
    """
    from headrace.cli.exporting import write

    with _opened(log, of) as opened, opened.batches(view) as batches:
        rows = write(batches, to)
    if json:
        show_json({"view": view, "file": str(to), "rows": rows})
    else:
        say(f"Wrote {many(rows, 'row')} to {to}")


def _show_rows(found: Result, json: bool, rest: str = "") -> None:
    rest = f", --limit 0 all{rest}"
    if not json:
        show_rows(found, rest)
        return
    for row in found.dicts():
        show_json(row_json(row))
    tell_more(found, rest)


@contextlib.contextmanager
def _opened(log: str, of: str | None) -> Iterator[Views]:
    """The views of an existing log."""
    with _views_of(log, of) as found:
        for path, reason in found.skipped().items():
            say(f"warning: skipped {path}: {reason}")
        yield found


def _views_of(log: str, of: str | None) -> Views:
    """Open the views of a log.

    Those of a log on Kafka are on this machine. The cluster's id finds them if they were made
    under another of its addresses, so only then a broker has to answer.
    """
    if not log.startswith(_KAFKA):
        with open_log(log, create=False) as opened:
            return open_views(opened.url, app=of)
    from headrace.log.kafka.address import parse_address

    url = str(parse_address(log))
    if views_folder(url).exists():
        return open_views(url, app=of)
    from headrace.plan.kafka.connection import cluster_of

    with open_log(log) as opened:
        folder = known_folder(opened.url, cluster_of(opened))
    return Views(url, of, folder=folder / "views")


def _elsewhere(log: str) -> str:
    if not log.startswith(_KAFKA):
        return ""
    return (
        f". If it ran in another folder, run this there, or set {STATE} to the folder "
        f"{DEFAULT_STATE} in it"
    )
