"""The changes of a rebuild to a view, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.cli.output import count, many, plain, show, table
from headrace.cli.view_tables import row_json
from headrace.store.sqlite.difference import KINDS, Change, Diff

_STYLES = {"changed": "yellow", "removed": "red", "added": "green"}


def show_diff(diff: Diff) -> None:
    """Print the number of changed rows, and the first ones before and after the change."""
    counts = [(kind, getattr(diff, kind)) for kind in KINDS]
    told = ", ".join(f"{count(number)} {kind}" for kind, number in counts)
    show(plain(f"{diff.view}: {told}, {count(diff.same)} unchanged", "bold"))
    for what, names in (("new", diff.new_columns), ("gone", diff.gone_columns)):
        for name in names:
            show(plain(f"column {name!r} is {what}"))
    if not diff.rows:
        return
    keys = list(dict.fromkeys(name for change in diff.rows for name in change.key))
    lines = table("", *keys, "before → after")
    for change in diff.rows:
        lines.add_row(
            plain(change.kind, _STYLES[change.kind]),
            *(plain(_text(change.key.get(name))) for name in keys),
            plain(_changes(change)),
        )
    show(lines)
    for kind, number in counts:
        listed = sum(change.kind == kind for change in diff.rows)
        if listed < number:
            show(plain(f"and {many(number - listed, 'more row')} {kind}"))


def change_json(change: Change) -> dict[str, Any]:
    """A changed row, by its key."""
    return {
        "change": change.kind,
        "key": row_json(change.key),
        "before": row_json(change.before) or None,
        "after": row_json(change.after) or None,
    }


def diff_json(diff: Diff, *, switched: bool, lost: int) -> dict[str, Any]:
    """The numbers of changed rows."""
    return {
        "view": diff.view,
        "added": diff.added,
        "removed": diff.removed,
        "changed": diff.changed,
        "same": diff.same,
        "new_columns": list(diff.new_columns),
        "gone_columns": list(diff.gone_columns),
        "switched": switched,
        "lost": lost,
    }


def _changes(change: Change) -> str:
    if change.kind == "changed":
        return ", ".join(
            f"{name} {_text(old)} → {_text(change.after[name])}"
            for name, old in change.before.items()
        )
    return _row(change.before or change.after)


def _row(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    return "null" if value is None else str(row_json({"": value})[""])
