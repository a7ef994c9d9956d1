"""The entry point: which commands there are, and how a run of one ends."""

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
    "produce": "Write JSON lines to a topic.",
    "consume": "Print the records of a topic.",
    "groups": "List, describe, reset and delete consumer groups.",
    "run": "Run an application: its streams on Spark, its results in its views.",
    "rebuild": "Compute a view again beside the live one, compare them, and switch.",
    "drain": "Close all windows of an application that gets no more rows.",
    "views": "List, show and query the views of a log.",
    "log": "Check what a log has stored.",
    "backup": "Copy a log with its views and checkpoints, while everything runs.",
    "restore": "Make a log of a backup.",
    "doctor": "Say what an application holds and waits for, and what is wrong with it.",
    "kafka": "Start and stop a Kafka of your own on this machine.",
    "demo": "Count page views as they come, or flag fraud, and see that it is right.",
    "bench": "Run a benchmark of the source checkout.",
}
"""Each is `app` in the module of the same name, which is imported when it is asked for."""


class Commands(FailureGroup):
    """Loads the command that is run and no other: `headrace --help` need not load Arrow."""

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
    epilog="Every command has --help. The log is where --log or HEADRACE_LOG say, else in ./data.",
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
    """Run the command line as a process does."""
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="headrace")
    sys.exit(0)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """End as after an exit, so that a consumer leaves its group and a producer is flushed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
