"""`headrace cdc`: capture the changes of databases."""

from __future__ import annotations

import typer

from headrace.cli import cdc_undo
from headrace.cli.options import new_app, show_help

app = new_app()


@app.callback(invoke_without_command=True)
def cdc(ctx: typer.Context) -> None:
    """Capture the changes of databases, and undo them."""
    show_help(ctx)


app.command("undo")(cdc_undo.undo)
