"""`headrace run`: run an application on Spark, or check whether it can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headrace.cli import spark_options as spark
from headrace.cli.failures import say
from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import plain, show, show_json, table
from headrace.errors import HeadraceError
from headrace.pipeline.app import App, check_latency

if TYPE_CHECKING:
    from headrace.application.preflight import Preflight, StepCheck

app = new_app()

_STYLES = {"new": "cyan", "changed": "bold red", "refused": "bold red", "undeclared": "yellow"}
_WORDS = {"undeclared": "no longer declared"}
SHORT_RUN = 200_000
"""Rows up to which a run until caught up is `--brief`."""


@app.command()
def run(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    latency: spark.Latency = None,
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
    stores: Annotated[
        bool,
        typer.Option(
            "--stores/--no-stores",
            help="Bring the stores of the views up to date beside the steps. If not, leave them to "
            "headrace stores run.",
        ),
    ] = True,
    max_rows: spark.MaxRows = None,
    max_commits: spark.MaxCommits = None,
    cores: spark.Cores = 0,
    memory: spark.Memory = "2g",
    state: spark.State = "memory",
    shuffle_partitions: spark.ShufflePartitions = 0,
    brief: spark.Brief = False,
    master: spark.Master = "",
    checkpoint: spark.Checkpoint = "5m",
    hold: spark.Hold = "1h",
    json: AsJson = False,
) -> None:
    """Run an application's pipelines on Spark and keep its views up to date.

    The application is a Python object, MODULE:APP, or an SQL file, FILE.sql.

    It runs until Ctrl-C, which exits with 130; the next run continues from there. At the end it
    accounts for every row. With --json, one object per step: step, rows, counted, late, dead,
    filtered, watermark, lag and more; with --check: step, status, changes, saved.
    """
    spark.check_memory(memory)
    declared = load_app(reference)
    url = log or declared.log or DEFAULT_LOG
    chosen = check_latency(latency) if latency is not None else declared.latency
    real_time = spark.real_time_of(checkpoint, hold)
    if check:
        _check(declared, url, json=json)
        return
    # Imported here, since it loads Spark's modules.
    from headrace.application.preflight import preflight
    from headrace.cli.running import run_watched
    from headrace.cli.step_tables import step_json, summary

    if not fresh and chosen != "real-time":  # which stores only a checkpoint
        found = preflight(declared, url)
        _tell_news(found)
        found.require()
    brief = brief or (until_caught_up and not master and _is_short(declared, url, fresh=fresh))
    steps, code = run_watched(
        declared,
        url,
        until_caught_up=until_caught_up,
        fresh=fresh,
        settings=spark.settings_of(cores, memory, shuffle_partitions, state, brief, master),
        batch_limits=spark.batch_limits_of(max_rows, max_commits),
        latency=chosen,
        real_time=real_time,
        stores=stores,
    )
    if json:
        for step in steps:
            show_json(step_json(declared.name, step))
    else:
        show(*summary(steps))
    if code:
        raise typer.Exit(code)


def _is_short(declared: App, url: str, *, fresh: bool) -> bool:
    """True if Java would compile for longer than the rows take."""
    from headrace.application.backlog import backlog

    rows = backlog(declared, url, fresh=fresh)
    return rows is not None and rows <= SHORT_RUN


def _check(declared: App, url: str, *, json: bool) -> None:
    """Show the result of the check."""
    from headrace.application.preflight import preflight

    found = preflight(declared, url)
    if json:
        for step in found.steps:
            show_json(_check_json(declared, step))
    else:
        show(_check_table(found))
        _tell_choices(found)
    if not found.ok:
        raise typer.Exit(1)


def _check_table(found: Preflight) -> Table:
    """One line per step, and one for each further change of it."""
    lines = table("step", "status", "stored results", "changes")
    for step in found.steps:
        first, *more = step.changes or ("-",)
        lines.add_row(
            plain(step.step, "bold"),
            plain(_WORDS.get(step.status, step.status), _STYLES.get(step.status, "")),
            plain(step.saved),
            plain(first),
        )
        for change in more:
            lines.add_row("", "", "", plain(change))
    return lines


def _tell_choices(found: Preflight) -> None:
    """Print what to do if a run would be refused."""
    try:
        found.require()
    except HeadraceError as error:
        for line in error.hint.splitlines():
            say(f"  → {line}")


def _tell_news(found: Preflight) -> None:
    """Print a line for each step that differs from the last run, except refused ones."""
    for step in found.news:
        if step.error is None:
            status = _WORDS.get(step.status, step.status)
            say(f"step {step.step!r} is {status}; stored results: {step.saved}")


def _check_json(app: App, step: StepCheck) -> dict[str, Any]:
    """A step, its stored results, and whether a run can continue from them."""
    return {
        "app": app.name,
        "step": step.step,
        "status": step.status,
        "ok": step.error is None,
        "saved": step.saved,
        "changes": list(step.changes),
        "hint": step.error.hint if step.error is not None else None,
    }
