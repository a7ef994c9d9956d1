"""`headrace log`: check stored data, and repair a catalog."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app, show_help
from headrace.cli.output import bytes_shown, plain, show, show_json, table
from headrace.wording import many

if TYPE_CHECKING:
    from headrace.log import Flaw

app = new_app()


@app.callback(invoke_without_command=True)
def log_group(ctx: typer.Context) -> None:
    """Check a log for damage, and repair its catalog."""
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
    _report(flaws, json, intact="Nothing is damaged")


@app.command("repair")
def repair(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Write the checksums of a log's catalog anew.

    For a log that is refused because a page of its catalog does not match its checksum, after
    another SQLite program opened catalog.db. Stop every process that uses the log first. It checks
    everything else, as 'headrace log check' does, and changes nothing if that finds damage. A copy
    of the catalog as it was stays beside it. Event-time frontiers and the offsets of groups are
    stored nowhere else: if a disk may have damaged them, restore a backup instead.
    """
    from headrace.application.safekeeping.backup import embedded
    from headrace.log import renew_checksums

    folder = embedded(log)
    with bytes_shown() as progress:
        copy, flaws = renew_checksums(folder, progress("checking"))
    _report(flaws, json, intact="Nothing else is damaged")
    say(f"The checksums of the catalog are renewed. As it was before: {copy}")


def _report(flaws: list[Flaw], json: bool, *, intact: str) -> None:
    """Show flaws, and exit with 1 if there is damage."""
    if json:
        for flaw in flaws:
            show_json(asdict(flaw))
    elif flaws:
        lines = table("item", "problem", "remedy")
        for flaw in flaws:
            lines.add_row(plain(flaw.what), plain(flaw.problem), flaw.remedy)
        show(lines)
    damaged = sum(not flaw.harmless for flaw in flaws)
    say(f"{many(damaged, 'damaged item')}" if damaged else intact)
    if damaged:
        raise typer.Exit(1)
