"""Options that many commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

import typer

from headrace.cli.failures import say
from headrace.errors import UserError

DEFAULT_LOG = "file:./data"  # as in headrace.log, which would make --help slow


def _warn_of_secrets(ctx: typer.Context, url: str | None) -> str | None:
    """Say so if a secret stands where everybody on the machine can read it."""
    # Only what was typed: a variable is for this user's eyes alone.
    source = ctx.get_parameter_source("log")
    if source is not None and source.name == "COMMANDLINE" and url and url.startswith("kafka:"):
        from headrace.log.kafka.address import ENVIRONMENT, is_secret

        for name, _ in parse_qsl(urlsplit(url).query):
            if is_secret(name):
                variable = ENVIRONMENT + name.upper().replace(".", "_")
                say(f"warning: everybody on this machine can read {name} in the list of processes")
                say(f"  → Set {variable} instead, or name a file with it: ?config=FILE")
    return url


LogUrl = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="HEADRACE_LOG",
        show_envvar=True,
        callback=_warn_of_secrets,
        show_default=True,
        help="Where the log is.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


AppReference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP|FILE.sql",
        help="Where the application is: pipelines.pageviews:app, pipelines/pageviews.py:app, "
        "or a file of SQL, pipelines/pageviews.sql",
        show_default=False,
    ),
]
AppLogUrl = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="HEADRACE_LOG",
        show_envvar=True,
        callback=_warn_of_secrets,
        help=f"Where the log is; by default where the application says, else {DEFAULT_LOG}.",
    ),
]


def new_app() -> typer.Typer:
    """An app for one command or group; the outermost one deals with errors."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def show_help(ctx: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees. Where nobody can be asked, only `--yes` is a yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            f"{question} There is no terminal to ask on", hint="Add --yes if that is what you want"
        )
    if not typer.confirm(question, err=True):
        typer.echo("Nothing was changed", err=True)
        raise typer.Exit(1)
