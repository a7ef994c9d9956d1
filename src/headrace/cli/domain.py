"""`headrace domain`: commands to event-sourced domains, states, history and what-if."""

from __future__ import annotations

import typer

from headrace.cli import domain_send, domain_show
from headrace.cli.options import new_app, show_help

app = new_app()


@app.callback(invoke_without_command=True)
def domain(ctx: typer.Context) -> None:
    """Send commands to aggregates, and show their states, their history and what if."""
    show_help(ctx)


app.command("describe")(domain_show.describe)
app.command("send")(domain_send.send)
app.command("run")(domain_send.run)
app.command("list")(domain_show.list_aggregates)
app.command("show")(domain_show.show)
app.command("history")(domain_show.history)
app.command("commands")(domain_show.commands)
app.command("what-if")(domain_show.what_if)
