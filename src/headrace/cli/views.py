"""`headrace views`: the results of applications."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app, show_help
from headrace.cli.output import show_json
from headrace.cli.view_tables import row_json, show_rows, show_view, show_views, view_json
from headrace.log import open_log
from headrace.store import Views, open_views

app = new_app()

OfApp = Annotated[
    str | None, typer.Option("--app", metavar="APP", help="Only the views of this application.")
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows.")
]


@app.callback(invoke_without_command=True)
def views(ctx: typer.Context) -> None:
    """List, show and query the views of a log."""
    show_help(ctx)


@app.command("list")
def list_views(log: LogUrl = DEFAULT_LOG, of: OfApp = None, json: AsJson = False) -> None:
    """List the views of a log. With --json, one object per line."""
    with _opened(log, of) as opened:
        states = opened.list()
    if json:
        for state in states:
            show_json(view_json(state))
    elif not states:
        say("There are no views: 'headrace run MODULE:APP' creates those of an application")
    else:
        show_views(states)


@app.command("show")
def show(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
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
        found = opened.newest(view, limit)
    if json:
        for row in found.dicts():
            show_json(row_json(row))
    else:
        show_view(state)
        show_rows(found)


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
        found = opened.query(sql, limit=limit, seconds=seconds)
    if json:
        for row in found.dicts():
            show_json(row_json(row))
    else:
        show_rows(found)


@contextlib.contextmanager
def _opened(log: str, of: str | None) -> Iterator[Views]:
    """The views of an existing log."""
    with open_log(log, create=False) as opened, open_views(opened.url, app=of) as found:
        for path, reason in found.skipped().items():
            say(f"warning: skipped {path}: {reason}")
        yield found
