"""`headrace cdc run`, `heal` and `snapshot`: capture an attached database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.cdc_attach import Prefix, locked
from headrace.cli.cdc_tables import Watch, run_json, summary, table_lines
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl
from headrace.cli.output import show, show_json
from headrace.errors import UserError

if TYPE_CHECKING:
    from headrace.cdc.supervised import CaptureProgress


def run(
    prefix: Prefix = None,
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up", help="Stop when all that is in the database now is captured."
        ),
    ] = False,
    heal: Annotated[
        bool,
        typer.Option(
            "--heal",
            help="If the database no longer has all changes, compare its tables with their topics "
            "and write the rows that differ.",
        ),
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Capture an attached database: first a snapshot, beside it and then alone its changes.

    It runs until Ctrl-C, and the next run goes on from there; so it does after a crash, with
    nothing lost and nothing twice. While the database is down, it waits for it.
    """
    progress, code = _run(prefix, log, until_caught_up=until_caught_up, heal=heal)
    if json:
        show_json(run_json(progress))
    else:
        say(summary(progress))
    if code:
        raise typer.Exit(code)


def heal(prefix: Prefix = None, *, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Compare all tables with their topics, write the rows that differ, and exit.

    For example after a gap: the database no longer had changes that were not captured yet.
    """
    from headrace.cdc.attachment import attached
    from headrace.cdc.requests import ask_for_snapshot
    from headrace.log import open_log

    with open_log(log, create=False) as opened:
        found = attached(opened, prefix)
        for table in found.tables:
            ask_for_snapshot(opened, found.prefix, table)
    progress, code = _run(found.prefix, log, until_caught_up=True, heal=True)
    if json:
        show_json(run_json(progress))
    else:
        show(table_lines(progress.tables))
        say(summary(progress))
    if code:
        raise typer.Exit(code)


def snapshot(
    prefix: Annotated[
        str,
        typer.Argument(metavar="PREFIX", help="The captured database.", show_default=False),
    ],
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="orders, or public.orders.", show_default=False),
    ],
    *,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Ask for the snapshot of a table, beside the stream: rows that differ are written.

    A capture that is running takes it at once, also in another process; else the next run does.
    """
    from headrace.cdc.attachment import attached
    from headrace.cdc.choice import TableChoice
    from headrace.cdc.requests import ask_for_snapshot
    from headrace.log import open_log

    with open_log(log, create=False) as opened:
        found = attached(opened, prefix)
        known = [tuple(name.split(".", 1)) for name in found.tables]
        chosen = TableChoice(names=(table,)).of([(one[0], one[-1]) for one in known])
        if len(chosen) > 1:
            raise UserError(
                f"Several tables are named {table!r}",
                hint=f"Name one: {', '.join('.'.join(each) for each in chosen)}",
            )
        name = ".".join(chosen[0])
        ask_for_snapshot(opened, found.prefix, name)
    if json:
        show_json({"prefix": found.prefix, "table": name})
    else:
        say(f"Asked for a snapshot of {name}. 'headrace cdc status {found.prefix}' shows it")


def _run(
    prefix: str | None, log: str, *, until_caught_up: bool, heal: bool
) -> tuple[CaptureProgress, int]:
    """Run a capture with live progress; return how far it came, and the exit code."""
    from headrace.cdc.attachment import attached
    from headrace.cdc.supervised import SupervisedRun
    from headrace.cli.asked import Asked
    from headrace.log import open_log

    asked = Asked()
    with open_log(log, create=False) as opened:
        found = attached(opened, prefix)
        with locked(opened, found.prefix), asked.listening(), Watch(found) as watch:
            running = SupervisedRun(
                opened,
                found,
                stopped=lambda: bool(asked.signal),
                tell=watch.tell,
                until_caught_up=until_caught_up,
                heal=heal,
            )
            progress = running.run()
    return progress, asked.code
