"""`headrace keys`: the keys that seal personal fields, and their end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import AsJson, Yes, confirm, new_app, show_help
from headrace.cli.output import plain, show, show_json, table
from headrace.eventsourcing.keys import KeyStore

app = new_app()

File = Annotated[
    Path,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="HEADRACE_KEYS",
        show_envvar=True,
        show_default=False,
        help="The key store.",
    ),
]


@app.callback(invoke_without_command=True)
def keys(ctx: typer.Context) -> None:
    """List the subjects of a key store, and forget a person by destroying a key."""
    show_help(ctx)


@app.command("list")
def list_keys(*, file: File, json: AsJson = False) -> None:
    """List the subjects that have a key, and those that are forgotten.

    With --json, one object per line: subject, and for a forgotten one the time.
    """
    with KeyStore(file, create=False) as store:
        there, gone = store.subjects(), store.forgotten()
    if json:
        for subject in there:
            show_json({"subject": subject, "forgotten": None})
        for one in gone:
            show_json({"subject": one.subject, "forgotten": one.at.isoformat()})
        return
    if not there and not gone:
        say(f"{file} has no keys: the first one is made with the first personal field")
        return
    lines = table("subject", "forgotten")
    for subject in there:
        lines.add_row(plain(subject), "")
    for one in gone:
        lines.add_row(plain(one.subject), plain(f"{one.at:%Y-%m-%d %H:%M:%S}"))
    show(lines)


@app.command()
def forget(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT", help="The subject, such as customer/c-7.", show_default=False
        ),
    ],
    *,
    file: File,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Destroy the key of a subject, for good, and list what that does not reach.

    Its personal fields can no longer be read in any event, command, snapshot or view that has
    them sealed. No copy of the key is left in the files of the key store.
    """
    with KeyStore(file, create=False) as store:
        confirm(f"Destroy the key of {subject} for good?", yes=yes)
        done = store.forget(subject)
    if json:
        at, beyond = done.at.isoformat(), list(done.beyond)
        show_json({"subject": subject, "forgotten": at, "beyond": beyond})
        return
    typer.echo(f"Forgot {subject}: its key is destroyed. This does not reach:")
    for line in done.beyond:
        typer.echo(f"- {line}")
