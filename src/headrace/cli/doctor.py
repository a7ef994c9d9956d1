"""`headrace doctor`: diagnose an application."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AppReference, AsJson, new_app
from headrace.cli.output import facts, moment, plain, show, show_json, table
from headrace.cli.step_tables import OTHER_TERMS
from headrace.wording import count, many, size, when

if TYPE_CHECKING:
    from headrace.application.doctor import Checkup, Finding, StepCheckup

app = new_app()


@app.command()
def doctor(
    reference: AppReference,
    *,
    log: AppLogUrl = None,
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of newest rows per topic to examine.")
    ] = 100_000,
    json: AsJson = False,
) -> None:
    """Diagnose an application: its state, what it waits for, and what is wrong.

    The application may be running. It changes nothing and does not start Spark. The exit code is 1
    if lag grows, events are duplicated, results come out of order, checkpoints are slow, many rows
    are dead letters, or events are missing after a schema change, else 0. Waiting is not an error.
    """
    declared = load_app(reference)
    # Imported here, since it loads Arrow and Spark's modules.
    from headrace.application.doctor import examine

    found = examine(declared, log or declared.log or DEFAULT_LOG, rows=rows)
    if json:
        show_json(_checkup_json(found))
    else:
        _show_checkup(found)
    if not found.healthy:
        raise typer.Exit(1)


def _checkup_json(found: Checkup) -> dict[str, Any]:
    """A checkup as JSON."""
    return {
        "app": found.app,
        "log": found.log,
        "running": found.running,
        "healthy": found.healthy,
        "findings": [_plain(finding.to_json()) for finding in found.findings],
        "steps": [_step_json(step) for step in found.steps],
        "looked_at": list(found.looked_at),
    }


def _show_checkup(found: Checkup) -> None:
    """Print the steps, the state of each and what it waits for, and what is wrong."""
    state = "is not running" if found.running is None else f"runs as process {found.running}"
    show(plain(f"{found.app} {state}", "bold"), "", _steps(found))
    for step in found.steps:
        show("", plain(f"step {step.step}", "bold"), _facts(step))
    for finding in found.findings:
        show("", plain(f"{finding.subject}: {finding.name}", "bold red"), _finding(finding))
    wrong = many(len(found.findings), "finding") if found.findings else "Nothing is wrong"
    looked_at = "; ".join(found.looked_at)
    show("", plain(f"{wrong}. Examined {looked_at}" if looked_at else wrong, "dim"))


def _steps(found: Checkup) -> Table:
    others = [term for term in OTHER_TERMS if any(getattr(s.law, term) for s in found.steps)]
    lines = table(
        "step", ">rows", ">counted", ">late", ">dead", *(f">{term}" for term in others), ">lag",
        ">output",
    )  # fmt: skip
    for step in found.steps:
        law = step.law
        lines.add_row(
            plain(step.step, "bold"),
            count(law.rows),
            count(law.counted),
            plain(count(law.late), "yellow" if law.late else ""),
            plain(count(law.dead), "red" if law.dead else ""),
            *(count(getattr(law, term)) for term in others),
            plain(count(step.backlog.rows), "yellow" if step.backlog.rows else ""),
            count(step.output),
        )
    return lines


def _facts(step: StepCheckup) -> Table:
    lines, held = facts(), step.held
    where = f"{size(held.table_bytes)} in views, {size(held.state_bytes)} in Spark's state"
    panes = f"{many(held.panes, 'open pane')} with {many(held.rows, 'row')}"
    lines.add_row("state", f"{panes}: {where}" if held.panes else f"no open panes: {where}")
    if held.closes is not None:
        lines.add_row(
            "closes",
            f"the oldest open window, which ends at {when(held.oldest)}, after an event at "
            f"{when(held.closes)}",
        )
    if step.frontier is not None:
        lines.add_row(
            "time", f"newest event {when(step.frontier)}, watermark {when(step.watermark)}"
        )
    for wait in step.waits:
        lines.add_row("waits", plain(wait.text))
        if wait.remedy:
            lines.add_row("", plain(f"→ {wait.remedy}", "dim"))
    return lines


def _finding(finding: Finding) -> Table:
    lines = facts()
    lines.add_row("problem", plain(finding.what))
    for number, text in enumerate(finding.evidence):
        lines.add_row("evidence" if not number else "", plain(text))
    lines.add_row("remedy", plain(finding.remedy))
    return lines


def _step_json(step: StepCheckup) -> dict[str, Any]:
    held = step.held
    return {
        "step": step.step,
        "law": dataclasses.asdict(step.law),
        "frontier": moment(step.frontier),
        "watermark": moment(step.watermark),
        "lag": step.backlog.rows,
        "lag_commits": step.backlog.commits,
        "output": step.output,
        "held": {
            "panes": held.panes,
            "rows": held.rows,
            "oldest_window_ends": moment(held.oldest),
            "closes_at": moment(held.closes),
            "next_to_fire": moment(held.fires),
            "table_bytes": held.table_bytes,
            "state_bytes": held.state_bytes,
        },
        "waits": [dataclasses.asdict(wait) for wait in step.waits],
    }


def _plain(value: Any) -> Any:
    """Values that JSON can hold; a timedelta becomes seconds."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.total_seconds() if isinstance(value, timedelta) else value
