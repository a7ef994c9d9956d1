"""What a run would find, as a table, as lines and as JSON."""

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
    """A line for each step, and one more for each further change of it."""
    lines = table("step", "is", "what was stored", "what is another")
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
    """What can be done about what a run would be refused for."""
    try:
        found.require()
    except HeadraceError as error:
        for line in error.hint.splitlines():
            say(f"  → {line}")


def tell_news(found: Preflight) -> None:
    """A line for each step with which something is another, but for what is refused anyhow."""
    for step in found.news:
        if step.error is None:
            say(f"step {step.step!r} is {_WORDS.get(step.status, step.status)}: {_saved(step)}")


def check_json(app: App, step: StepCheck) -> dict[str, Any]:
    """A step, what is stored of it, and whether a run would go on from there."""
    return {
        "app": app.name,
        "step": step.step,
        "status": step.status,
        "ok": step.error is None,
        "saved": step.saved,
        "changes": list(step.changes),
        "hint": step.error.hint if step.error is not None else None,
    }


def _saved(step: StepCheck) -> str:
    return f"what was stored {step.saved}" if step.status == "undeclared" else step.saved
