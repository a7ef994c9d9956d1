"""The result of a check before a run, as a table, as lines and as JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from headrace.application.preflight import Preflight, StepCheck
from headrace.cli.failures import say
from headrace.cli.output import plain, table
from headrace.errors import HeadraceError
from headrace.pipeline.app import App

_STYLES = {"new": "cyan", "changed": "bold red", "refused": "bold red", "undeclared": "yellow"}
_WORDS = {"undeclared": "no longer declared"}


def check_table(found: Preflight) -> Table:
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


def tell_choices(found: Preflight) -> None:
    """Print what to do if a run would be refused."""
    try:
        found.require()
    except HeadraceError as error:
        for line in error.hint.splitlines():
            say(f"  → {line}")


def tell_news(found: Preflight) -> None:
    """Print a line for each step that differs from the last run, except refused ones."""
    for step in found.news:
        if step.error is None:
            status = _WORDS.get(step.status, step.status)
            say(f"step {step.step!r} is {status}; stored results: {step.saved}")


def check_json(app: App, step: StepCheck) -> dict[str, Any]:
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
