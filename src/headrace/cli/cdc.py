"""`headrace cdc`: capture the changes of databases."""

from __future__ import annotations

import typer

from headrace.cli import cdc_attach, cdc_run, cdc_status, cdc_undo
from headrace.cli.options import new_app, show_help

app = new_app()


@app.callback(invoke_without_command=True)
def cdc(ctx: typer.Context) -> None:
    """Capture the changes of databases, and undo them."""
    show_help(ctx)


app.command("attach")(cdc_attach.attach)
app.command("run")(cdc_run.run)
app.command("status")(cdc_status.status)
app.command("snapshot")(cdc_run.snapshot)
app.command("heal")(cdc_run.heal)
app.command("undo")(cdc_undo.undo)
app.command("detach")(cdc_attach.detach)
