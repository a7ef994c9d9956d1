"""Error messages and exit codes.

0     done
1     a failure
2     a mistake of the user
3     a command that a domain's rules refuse
130   Ctrl-C
141   the reader of the output is gone, as after `| head`
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from headrace.errors import HeadraceError, UserError

REFUSED = 3
INTERRUPTED = 130
BROKEN_PIPE = 141


class FailureGroup(TyperGroup):
    """The outermost command. It reports expected errors in a line, without a traceback."""

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            code = _report_misuse(error)
        except typer.Abort:
            code = INTERRUPTED
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except HeadraceError as error:
            report(error)
            raise typer.Exit(2 if isinstance(error, UserError) else 1) from None
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(BROKEN_PIPE) from None


def report(error: HeadraceError) -> None:
    """Print an error on stderr: what happened, then each hint on its own line."""
    say(f"error: {error.message}")
    for line in error.hint.splitlines():
        say(f"  → {line}")


def say(text: str) -> None:
    """Print a message on stderr, which keeps it out of the data."""
    typer.echo(text, err=True)


def _report_misuse(error: typer.TyperException) -> int:
    """Print a usage error, and the command that shows the help."""
    say(f"error: {error.format_message()}")
    if (context := getattr(error, "ctx", None)) is not None:
        say(f"  → {context.command_path} --help")
    return error.exit_code


def _drop_output() -> None:
    """Discard buffered output; otherwise Python complains at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
