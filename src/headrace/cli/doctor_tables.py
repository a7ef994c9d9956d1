"""What the doctor has to say, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from rich.table import Table

from headrace.cli.output import count, many, moment, plain, show, size, table, when
from headrace.doctor import Checkup, Finding, StepCheckup


def checkup_json(found: Checkup) -> dict[str, Any]:
    """All of it."""
    return {
        "app": found.app,
        "log": found.log,
        "running": found.running,
        "healthy": found.healthy,
        "findings": [_plain(finding.to_json()) for finding in found.findings],
        "steps": [_step_json(step) for step in found.steps],
        "looked_at": list(found.looked_at),
    }


def show_checkup(found: Checkup) -> None:
    """A table of the steps, what each waits for, and what is wrong."""
    state = "is not running" if found.running is None else f"runs as process {found.running}"
    show(plain(f"{found.app} {state}", "bold"), "", _steps(found))
    for step in found.steps:
        if step.waits:
            show("", plain(step.step, "bold"), _waits(step))
    for finding in found.findings:
        show("", plain(f"{finding.subject}: {finding.name}", "bold red"), _finding(finding))
    wrong = many(len(found.findings), "finding") if found.findings else "nothing is wrong"
    looked_at = "; ".join(found.looked_at)
    show("", plain(f"{wrong}, by {looked_at}" if looked_at else wrong, "dim"))


def _steps(found: Checkup) -> Table:
    lines = table(
        "step", ">rows", ">lag", "watermark", ">output", ">open panes", ">held in views",
        ">in Spark's state", "oldest window ends", "closes at",
    )  # fmt: skip
    for step in found.steps:
        held = step.held
        lines.add_row(
            plain(step.step, "bold"),
            count(step.law.rows),
            plain(count(step.backlog.rows), "yellow" if step.backlog.rows else ""),
            when(step.watermark),
            count(step.output),
            count(held.panes),
            size(held.table_bytes),
            size(held.state_bytes),
            when(held.oldest),
            when(held.closes),
        )
    return lines


def _waits(step: StepCheckup) -> Table:
    lines = _grid()
    for wait in step.waits:
        lines.add_row("waits", plain(wait.text))
        if wait.remedy:
            lines.add_row("", plain(f"→ {wait.remedy}", "dim"))
    return lines


def _finding(finding: Finding) -> Table:
    lines = _grid()
    lines.add_row("what", plain(finding.what))
    for number, text in enumerate(finding.evidence):
        lines.add_row("seen" if not number else "", plain(text))
    lines.add_row("remedy", plain(finding.remedy))
    return lines


def _grid() -> Table:
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
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
    """Numbers and names as JSON has them; a span is in seconds."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.total_seconds() if isinstance(value, timedelta) else value
