"""Reference semantics of the top N, from the panes of an aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.operators.top.declare import RANK, Top
from headrace.operators.window.meaning import Meaning, Pane, PaneKey, meaning, row_of
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.rows import Row

Place = tuple[Any, ...]
"""The values of `within`, the window's start unless the board is live, and the rank."""


def ranking(top: Top, found: Meaning, frontier: int | None) -> dict[Place, tuple[PaneKey, Pane]]:
    """The pane at each rank, at a frontier.

    Final panes leave a live board. With emit="final", only final panes are ranked.
    """
    final = found.final(top.of, frontier)
    panes: Mapping[PaneKey, Pane] = found.panes if top.emit == "updates" else final
    groups: dict[Place, list[tuple[PaneKey, Pane]]] = {}
    for key, pane in panes.items():
        if not (top.live and key in final):
            named = dict(zip(top.of.by, key, strict=False))
            group = tuple(named[name] for name in top.within)
            group = group if top.live else (*group, *key[len(top.of.by) :])
            groups.setdefault(group, []).append((key, pane))
    return {
        (*group, rank): one
        for group, rows in groups.items()
        for rank, one in enumerate(_highest(top, rows), 1)
    }


def shown(top: Top, excerpt: Excerpt) -> list[Row]:
    """The ranked panes as rows."""
    found = ranking(top, meaning(top.of, excerpt.events), excerpt.frontier)
    return [{**row_of(top.of, key, pane), RANK: rank} for (*_, rank), (key, pane) in found.items()]


def _highest(top: Top, rows: list[tuple[PaneKey, Pane]]) -> list[tuple[PaneKey, Pane]]:
    """The first `n` of a group. Nulls come last, among values as among keys."""
    by_key = sorted(rows, key=lambda row: [(1,) if part is None else (0, part) for part in row[0]])
    values = {key: pane.result(top.of.aggregates)[top.by] for key, pane in rows}
    some = [row for row in by_key if values[row[0]] is not None]
    none = [row for row in by_key if values[row[0]] is None]
    return [*sorted(some, key=lambda row: values[row[0]], reverse=True), *none][: top.n]
