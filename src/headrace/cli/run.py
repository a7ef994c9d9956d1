"""`headrace run`: an application on Spark, from the log to its views."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import show, show_json
from headrace.errors import InvalidSetting

app = new_app()

_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)


@app.command()
def run(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop when what is in the log now is done."),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Remove the application's views, and compute everything again from the log, as "
            "after a change. What it published stays, and is published again.",
        ),
    ] = False,
    max_rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End a batch after the commit with its Nth row."),
    ] = None,
    max_commits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End a batch after N commits.")
    ] = None,
    cores: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many cores to use; 0 means all.")
    ] = 0,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for Spark.", show_default=True)
    ] = "2g",
    state: Annotated[
        Literal["memory", "rocksdb"],
        typer.Option(
            metavar="memory|rocksdb",
            help="Where open windows are kept: in memory, which is faster, or in RocksDB, which "
            "may be larger than memory.",
            show_default=True,
        ),
    ] = "memory",
    shuffle_partitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Into how many parts keys are spread; 0 means one for each core. It is fixed "
            "when an application first runs.",
        ),
    ] = 0,
    brief: Annotated[
        bool,
        typer.Option(
            "--brief",
            envvar="HEADRACE_BRIEF",
            show_envvar=True,
            help="For a run of minutes: Java compiles less, and is sooner at its best, which is "
            "less.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Run an application: its streams on Spark, its results in its views.

    It goes on until Ctrl-C, which exits with 130, and the next run goes on from there. At the
    end it says what became of every row. With --json, one object per line and step: step, rows,
    counted, late, dead, filtered, watermark, lag and more.
    """
    if not _MEMORY.fullmatch(memory):
        raise InvalidSetting(f"{memory!r} is not a size of memory", hint="Write 512m or 2g")
    declared = load_app(reference)
    # Only now, when there is something to run: this brings Spark's own modules.
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary
    from headrace.engine.frames import Portions
    from headrace.engine.session import SparkSettings

    usual = Portions()
    steps, code = run_watched(
        declared,
        log or declared.log or DEFAULT_LOG,
        until_caught_up=until_caught_up,
        fresh=fresh,
        settings=SparkSettings(cores, memory, shuffle_partitions, state, brief),
        portions=Portions(max_rows or usual.max_rows, max_commits or usual.max_commits),
    )
    if json:
        for step in steps:
            show_json(step_json(declared, step))
    else:
        show(summary(declared, steps))
    if code:
        raise typer.Exit(code)
