"""`headrace doctor`: how an application is, and what helps."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import show_json

app = new_app()


@app.command()
def doctor(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    rows: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How many of the newest rows of a topic to look at."),
    ] = 100_000,
    json: AsJson = False,
) -> None:
    """Say what an application holds and waits for, and what is wrong with it.

    It may be running or not. Nothing is changed, and no Spark is started. It exits with 0 if
    nothing is wrong, and with 1 if lag grows, events are there twice, results come out of order,
    checkpoints are slow, or events are missing since their schema has changed. To wait for
    something is not wrong.
    """
    declared = load_app(reference)
    # Only now, when there is something to look at: this brings Arrow and Spark's own modules.
    from headrace.application.doctor import examine
    from headrace.cli.doctor_tables import checkup_json, show_checkup

    found = examine(declared, log or declared.log or DEFAULT_LOG, rows=rows)
    if json:
        show_json(checkup_json(found))
    else:
        show_checkup(found)
    if not found.healthy:
        raise typer.Exit(1)
