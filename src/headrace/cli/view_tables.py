"""Views and their rows, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rich.text import Text

from headrace.cli.failures import say
from headrace.cli.output import facts, moment, plain, show, table
from headrace.clock import SECOND
from headrace.log.record_json import text_or_base64, zulu
from headrace.schema.json_text import finite
from headrace.store import Result, ViewState
from headrace.store.sqlite.database import LIVE
from headrace.wording import count, many, span, when

_STATES = {"open": "yellow", "fired": "cyan", "final": "green"}


def view_json(state: ViewState) -> dict[str, Any]:
    """A view, its progress, and the account of its input rows."""
    return {
        "name": state.name,
        "app": state.app,
        "key": list(state.key),
        "columns": dict(state.columns),
        "emit": state.emit,
        "delay": state.delay / SECOND,
        "grace": state.grace / SECOND,
        "frontier": moment(state.frontier),
        "watermark": moment(state.watermark),
        "rows": state.rows,
        "law": dataclasses.asdict(state.law),
    }


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a view, with values that JSON can hold."""
    return {name: _jsonable(value) for name, value in row.items()}


def show_views(states: Sequence[ViewState]) -> None:
    """Print a table with one view per line."""
    lines = table("view", "app", ">rows", "watermark", "emit", "key", ">late", ">dead")
    for state in states:
        lines.add_row(
            plain(state.name, "bold"),
            plain(state.app),
            count(state.rows),
            when(state.watermark),
            state.emit,
            plain(", ".join(state.key)),
            count(state.law.late),
            count(state.law.dead),
        )
    show(lines)


def show_view(state: ViewState) -> None:
    """Print the facts about a view."""
    lines = facts()
    lines.add_row("view", plain(f"{state.name} of {state.app}", "bold"))
    lines.add_row("rows", count(state.rows))
    if state.emit == LIVE:
        lines.add_row("emit", "live: rows follow their input, and are never final")
    else:
        lines.add_row(
            "watermark",
            f"{when(state.watermark)}  (a window fires {span(state.delay / SECOND)} after its end, "
            f"and is final {span(state.grace / SECOND)} later)",
        )
    lines.add_row("input", plain(str(state.law)))
    show(lines, "")


def show_rows(found: Result, rest: str = "") -> None:
    """Print the rows of a view or a query. `rest` says how else to see those that were cut."""
    numbers = {
        place
        for place in range(len(found.columns))
        if any(isinstance(row[place], int | float) for row in found.rows)
    }
    lines = table(*(f">{c}" if i in numbers else c for i, c in enumerate(found.columns)))
    for row in found.rows:
        lines.add_row(*(_cell(name, value) for name, value in zip(found.columns, row, strict=True)))
    show(lines)
    tell_more(found, rest)


def tell_more(found: Result, rest: str = "") -> None:
    """Say on stderr that rows were cut, and how to see them."""
    if found.more:
        say(f"There are more than {many(len(found.rows), 'row')}: --limit N shows up to N{rest}")


def _cell(name: str, value: Any) -> Text:
    if value is None:
        return plain("null", "dim")
    shown = str(_jsonable(value))
    return plain(shown, _STATES.get(shown, "") if name == "_state" else "")


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, datetime):
        return zulu(value)
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    return finite(value) if isinstance(value, float) else value
