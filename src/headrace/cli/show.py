"""`headrace show`: the rows of a step over the newest part of the log."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live

from headrace.cli.failures import INTERRUPTED, say
from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import out, plain, show_json
from headrace.cli.output import show as print_out
from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import UserError
from headrace.log import Log, open_log
from headrace.log.record_json import text_or_base64, zulu
from headrace.pipeline.app import App
from headrace.pipeline.stream import Source, Stream
from headrace.pipeline.where import Where
from headrace.schema.json_text import finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.application.shown import Shown

app = new_app()


@app.command()
def show(
    reference: AppReference,
    step: Annotated[
        str,
        typer.Argument(
            metavar="STEP", help="A view, an output or a topic of it.", show_default=False
        ),
    ],
    *,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of rows.")] = 10,
    first: Annotated[bool, typer.Option("--first", help="The first rows, not the last.")] = False,
    rows: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of newest rows per topic to compute from."),
    ] = 10_000,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show them again when rows arrive, until Ctrl-C.")
    ] = False,
    log: AppLogUrl = None,
    json: AsJson = False,
) -> None:
    """Show the rows of a view, an output or a topic, without running the application.

    They are computed from the newest part of the log, and nothing is stored. Plain Python does it
    in a moment if it knows the expressions of the step, else Spark is started. With --json, one
    object per row.
    """
    if watch and json:
        raise UserError("--watch draws a table", hint="Leave out --watch or --json")
    declared = load_app(reference)
    stream = stream_of(declared, step, Where(reference, 1))
    # Imported here, so that a wrong name is refused at once.
    from headrace.application.show import inputs_of, look

    with open_log(log or declared.log or DEFAULT_LOG, create=False) as opened:

        def compute() -> Shown:
            return look(stream, n, first=first, log=opened, rows=rows, session=_session)

        if watch:
            topics = [source.topic.name for source in inputs_of(stream)]
            watch_rows(compute, lambda: _ends(opened, topics), SystemClock())
        found = compute()
    if json:
        for row in found.rows:
            show_json({name: jsonable(value) for name, value in row.items()})
        say(found.caption)
    else:
        print_out(*_drawn(found))


def stream_of(declared: App, name: str, where: Where) -> Stream:
    """The stream of a view, an output or a topic."""
    if name in declared.views:
        return declared.views[name].stream
    if name in declared.outputs:
        return declared.outputs[name].stream
    if (topic := declared.topics.get(name)) is not None:
        assert topic.schema is not None
        return Source(tuple(topic.schema.names), where, topic)
    known = [*declared.views, *declared.outputs, *declared.topics]
    if name == f"{declared.name}.dead":
        raise UserError(
            f"{name!r} is the topic of dead letters, which no step computes",
            hint=f"headrace consume {name} prints them",
        )
    near = difflib.get_close_matches(name, known, 1)
    raise UserError(
        f"Application {declared.name!r} has no view, output or topic {name!r}",
        hint=f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known) or 'none'}",
    )


def watch_rows(compute: Callable[[], Shown], state: Callable[[], object], clock: Clock) -> None:
    """Draw the rows, and again when the state of the log changes, until Ctrl-C."""
    try:
        seen, found = state(), compute()
        if not sys.stdout.isatty():
            while True:
                print_out(*_drawn(found), "")
                while (now := state()) == seen:
                    clock.sleep(SECOND)
                seen, found = now, compute()
        with Live(get_renderable=lambda: Group(*_drawn(found)), console=out(), screen=False):
            while True:
                clock.sleep(SECOND)
                if (now := state()) != seen:
                    seen, found = now, compute()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _ends(log: Log, topics: list[str]) -> list[list[int]]:
    """The end of each partition."""
    return [[part.end for part in log.topic(name).partitions] for name in topics]


def _drawn(found: Shown) -> tuple[RenderableType, ...]:
    spark = f"; Spark computed it: {found.spark}" if found.spark else ""
    return found.table(), plain(f"{found.caption}{spark}", "dim")


def _session(why: str) -> SparkSession:
    """A session for one answer."""
    from headrace.runtime.session import SparkSettings, spark_session

    say(f"Starting Spark: {why} ...")
    return spark_session(SparkSettings(brief=True))


def jsonable(value: Any) -> Any:
    """A value that JSON can hold."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return finite(value)
        case bytes():
            return text_or_base64(value)
        case datetime():
            return zulu(value)
        case date() | time():
            return value.isoformat()
        case dict():
            return {str(name): jsonable(part) for name, part in value.items()}
        case list() | tuple():
            return [jsonable(part) for part in value]
    return str(value)
