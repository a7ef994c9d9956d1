"""`headrace run`: an application on Spark, from the log to its views."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import show, show_json
from headrace.cli.spark_options import (
    Brief,
    Checkpoint,
    Cores,
    Hold,
    Latency,
    Master,
    MaxCommits,
    MaxRows,
    Memory,
    ShufflePartitions,
    State,
    check_memory,
    portions_of,
    real_time_of,
    settings_of,
)
from headrace.pipeline.app import App, check_latency

app = new_app()


@app.command()
def run(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    latency: Latency = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop when what is in the log now is done."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only say, for each step, what is stored of it, whether a run would go on from "
            "there, and why not. Spark is not started. Exits with 1 if a run would be refused.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Remove the application's views, and compute everything again from the log, as "
            "after a change. What it published stays, and is published again.",
        ),
    ] = False,
    max_rows: MaxRows = None,
    max_commits: MaxCommits = None,
    cores: Cores = 0,
    memory: Memory = "2g",
    state: State = "memory",
    shuffle_partitions: ShufflePartitions = 0,
    brief: Brief = False,
    master: Master = "",
    checkpoint: Checkpoint = "5m",
    hold: Hold = "1h",
    json: AsJson = False,
) -> None:
    """Run an application: its streams on Spark, its results in its views.

    It is in a module, MODULE:APP, or is a whole file of SQL, FILE.sql.

    It goes on until Ctrl-C, which exits with 130, and the next run goes on from there. At the
    end it says what became of every row. With --json, one object per line and step: step, rows,
    counted, late, dead, filtered, watermark, lag and more; with --check: step, status, changes,
    saved.
    """
    check_memory(memory)
    declared = load_app(reference)
    url = log or declared.log or DEFAULT_LOG
    chosen = check_latency(latency) if latency is not None else declared.latency
    real_time = real_time_of(checkpoint, hold)
    if check:
        _check(declared, url, json=json)
        return
    # Only now, when there is something to run: this brings Spark's own modules.
    from headrace.application.preflight import preflight
    from headrace.cli.check_tables import tell_news
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary

    if not fresh and chosen != "real-time":  # of that, nothing is stored but its checkpoint
        found = preflight(declared, url)
        tell_news(found)
        found.require()
    steps, code = run_watched(
        declared,
        url,
        until_caught_up=until_caught_up,
        fresh=fresh,
        settings=settings_of(cores, memory, shuffle_partitions, state, brief, master),
        batch_limits=portions_of(max_rows, max_commits),
        latency=chosen,
        real_time=real_time,
    )
    if json:
        for step in steps:
            show_json(step_json(declared, step))
    else:
        show(summary(declared, steps))
    if code:
        raise typer.Exit(code)


def _check(declared: App, url: str, *, json: bool) -> None:
    """Show what a run would find."""
    from headrace.application.preflight import preflight
    from headrace.cli.check_tables import check_json, check_table, tell_choices

    found = preflight(declared, url)
    if json:
        for step in found.steps:
            show_json(check_json(declared, step))
    else:
        show(check_table(found))
        tell_choices(found)
    if not found.ok:
        raise typer.Exit(1)
