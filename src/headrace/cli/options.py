"""Options that many commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.errors import UserError

DEFAULT_LOG = "file:./data"

LogUrl = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="HEADRACE_LOG",
        show_envvar=True,
        show_default=True,
        help="Where the log is.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


AppReference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="Where the application is: pipelines.pageviews:app, or pipelines/pageviews.py:app",
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
