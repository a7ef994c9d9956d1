"""Options that several commands share."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

import typer

from headrace.cli.failures import say
from headrace.errors import UserError

DEFAULT_LOG = "file:./data"  # as in headrace.log, which would make --help slow


def _warn_of_secrets(ctx: typer.Context, url: str | None) -> str | None:
    """Warn of a secret on the command line, which every user of the machine can read."""
    # Only a typed URL: other users cannot read environment variables.
    source = ctx.get_parameter_source("log")
    if source is not None and source.name == "COMMANDLINE" and url and url.startswith("kafka:"):
        from headrace.log.kafka.address import ENVIRONMENT, is_secret

        for name, _ in parse_qsl(urlsplit(url).query):
            if is_secret(name):
                variable = ENVIRONMENT + name.upper().replace(".", "_")
                say(f"warning: every user of this machine can read {name} in the process list")
                say(f"  → Set {variable} instead, or put it in a file: ?config=FILE")
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
        help="URL of the log.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


AppReference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP|FILE.sql",
        help="The application: pipelines.pageviews:app, pipelines/pageviews.py:app, "
        "or an SQL file, pipelines/pageviews.sql",
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
        help=f"URL of the log. Default: the one in the application, else {DEFAULT_LOG}.",
    ),
]


def new_app() -> typer.Typer:
    """A Typer app for one command or group. The outermost one handles errors."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def show_help(ctx: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees. Without a terminal, `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{question} There is no terminal to ask on", hint="Add --yes to confirm")
    if not typer.confirm(question, err=True):
        typer.echo("Nothing was changed", err=True)
        raise typer.Exit(1)
