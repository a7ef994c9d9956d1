"""The entry point of the command line."""

from __future__ import annotations

import importlib
import signal
import sys
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.main import get_command

from headrace.cli.failures import FailureGroup
from headrace.cli.options import show_help

COMMANDS = {
    "topics": "Create, list, describe, change and delete topics.",
    "produce": "Write JSON lines, or Parquet and CSV files, to a topic.",
    "consume": "Print the records of a topic.",
    "groups": "List, describe, reset and delete consumer groups.",
    "queue": "Hand out messages of a topic one at a time, to workers.",
    "domain": "Send commands to aggregates, and show their states, their history and what if.",
    "show": "Show the rows of a view, an output or a topic, without running the application.",
    "run": "Run an application's pipelines on Spark and keep its views up to date.",
    "rebuild": "Recompute a view beside the live one, compare the two, and switch.",
    "verify": "Compare views with what they are derived from, and with their stores.",
    "drain": "Close all open windows of an application whose input has ended.",
    "views": "List, show, query and export the views of a log.",
    "cdc": "Capture the changes of databases, and undo them.",
    "search": 'Search a view that has a search index, app.view(..., store="search:"), best matches '
    "first.",
    "stores": "List the stores of views, follow the changes of views, and build stores again.",
    "keys": "List the subjects of a key store, and forget a person by destroying a key.",
    "log": "Check a log for damage, and repair its catalog.",
    "backup": "Copy a log with its views and checkpoints while applications run.",
    "restore": "Create a log from a backup.",
    "doctor": "Diagnose an application: its state, what it waits for, and what is wrong.",
    "studio": "Show a log and its pipelines in a browser, and learn streaming from simulations.",
    "kafka": "Start and stop a local Kafka cluster.",
    "demo": "Count page views, flag fraud, keep stores up to date or run a bank, and verify the "
    "results.",
    "bench": "Run a benchmark from a source checkout.",
}
"""Each is `app` in the module of the same name, imported on first use."""


class Commands(FailureGroup):
    """Commands that load on first use, so that `headrace --help` does not load Arrow."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"headrace.cli.{cmd_name}")
        command = get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="headrace",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Every command has --help. --log or HEADRACE_LOG names the log; the default is ./data.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def headrace(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
) -> None:
    """A durable event log in a folder, and the streams derived from it."""
    show_help(ctx)


def main() -> NoReturn:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="headrace")
    sys.exit(0)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Exit normally, so that a consumer leaves its group and a producer flushes."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
