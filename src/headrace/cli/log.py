"""`headrace log`: check stored data."""

from __future__ import annotations

from dataclasses import asdict

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app, show_help
from headrace.cli.output import bytes_shown, many, plain, show, show_json, table

app = new_app()


@app.callback(invoke_without_command=True)
def log_group(ctx: typer.Context) -> None:
    """Check a log for damage."""
    show_help(ctx)


@app.command("check")
def check(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Read everything in a log, and report damage and its remedy.

    It verifies the checksum of every record, the consistency of the catalog, and the views against
    the log. It changes nothing, and the log may be in use. The exit code is 1 if there is damage.
    With --json, one object per finding.
    """
    from headrace.application.safekeeping.backup import embedded
    from headrace.application.safekeeping.check import check as examine

    folder = embedded(log)
    with bytes_shown() as progress:
        flaws = examine(folder, progress("checking"))
    if json:
        for flaw in flaws:
            show_json(asdict(flaw))
    elif flaws:
        lines = table("item", "problem", "remedy")
        for flaw in flaws:
            lines.add_row(plain(flaw.what), plain(flaw.problem), flaw.remedy)
        show(lines)
    damaged = sum(not flaw.harmless for flaw in flaws)
    say(f"{many(damaged, 'damaged item')}" if damaged else "Nothing is damaged")
    if damaged:
        raise typer.Exit(1)
