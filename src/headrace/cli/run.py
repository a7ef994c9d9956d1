"""`headrace run`: run an application on Spark."""

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
    batch_limits_of,
    check_memory,
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
        typer.Option(
            "--until-caught-up", help="Stop when everything that is in the log now is processed."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only show the stored results of each step, and whether a run can continue from "
            "them. Does not start Spark. Exits with 1 if a run would be refused.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Delete the application's views, and recompute everything from the log, for "
            "example after a change. Published rows stay, and are published again.",
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
    """Run an application's pipelines on Spark and keep its views up to date.

    The application is a Python object, MODULE:APP, or an SQL file, FILE.sql.

    It runs until Ctrl-C, which exits with 130; the next run continues from there. At the end it
    accounts for every row. With --json, one object per step: step, rows, counted, late, dead,
    filtered, watermark, lag and more; with --check: step, status, changes, saved.
    """
    check_memory(memory)
    declared = load_app(reference)
    url = log or declared.log or DEFAULT_LOG
    chosen = check_latency(latency) if latency is not None else declared.latency
    real_time = real_time_of(checkpoint, hold)
    if check:
        _check(declared, url, json=json)
        return
    # Imported here, since it loads Spark's modules.
    from headrace.application.preflight import preflight
    from headrace.cli.check_tables import tell_news
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary

    if not fresh and chosen != "real-time":  # which stores only a checkpoint
        found = preflight(declared, url)
        tell_news(found)
        found.require()
    steps, code = run_watched(
        declared,
        url,
        until_caught_up=until_caught_up,
        fresh=fresh,
        settings=settings_of(cores, memory, shuffle_partitions, state, brief, master),
        batch_limits=batch_limits_of(max_rows, max_commits),
        latency=chosen,
        real_time=real_time,
    )
    if json:
        for step in steps:
            show_json(step_json(declared, step))
    else:
        show(*summary(declared, steps))
    if code:
        raise typer.Exit(code)


def _check(declared: App, url: str, *, json: bool) -> None:
    """Show the result of the check."""
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
