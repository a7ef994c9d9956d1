"""`headrace doctor`: diagnose an application."""

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
        typer.Option(metavar="N", min=1, help="Number of newest rows per topic to examine."),
    ] = 100_000,
    json: AsJson = False,
) -> None:
    """Diagnose an application: its state, what it waits for, and what is wrong.

    The application may be running. It changes nothing and does not start Spark. The exit code is 1
    if lag grows, events are duplicated, results come out of order, checkpoints are slow, or events
    are missing after a schema change, else 0. Waiting is not an error.
    """
    declared = load_app(reference)
    # Imported here, since it loads Arrow and Spark's modules.
    from headrace.application.doctor import examine
    from headrace.cli.doctor_tables import checkup_json, show_checkup

    found = examine(declared, log or declared.log or DEFAULT_LOG, rows=rows)
    if json:
        show_json(checkup_json(found))
    else:
        show_checkup(found)
    if not found.healthy:
        raise typer.Exit(1)
