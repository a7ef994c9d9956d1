"""Rebuild a view from the page: its progress, what would change, and the switch.

The rebuild is `headrace rebuild` in a process of its own. It only compares at first; the switch is
asked for apart, and takes up the version that was built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import htpy as h
from fastapi import APIRouter
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.errors import UnknownView
from headrace.studio.live.cells import cell
from headrace.studio.live.pipeline_states import PipelineNow, Watch, Watching
from headrace.studio.live.processes import Started
from headrace.studio.pages import badge, failure, fragment, section, table

router = APIRouter()

_KINDS = {"changed": "warn", "removed": "bad", "added": "good"}


@dataclass(frozen=True)
class Difference:
    """The outcome of a rebuild: numbers of rows, and the first changed ones."""

    totals: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @property
    def switched(self) -> bool:
        return bool(self.totals["switched"])

    @property
    def words(self) -> str:
        kinds = ", ".join(f"{self.totals[kind]:,} {kind}" for kind in _KINDS)
        return f"{kinds}, {self.totals['same']:,} unchanged"


@router.post("/pipelines/{app}/rebuild/{view}", include_in_schema=False)
def rebuild(watch: Watching, app: str, view: str) -> HTMLResponse:
    """Compute a view again beside the live one, and compare the two."""
    _known(watch, app, view)
    started = watch.processes.rebuild(app, view, switch=False)
    return _done(f"Rebuilding {view} beside the live one, as process {started.pid}.")


@router.post("/pipelines/{app}/rebuild/{view}/switch", include_in_schema=False)
def switch(watch: Watching, app: str, view: str) -> HTMLResponse:
    """Replace the live version of a view with the one that was built."""
    _known(watch, app, view)
    started = watch.processes.rebuild(app, view, switch=True)
    return _done(f"Switching {view} to the new version, as process {started.pid}.")


@router.post("/pipelines/{app}/rebuild/{view}/stop", include_in_schema=False)
def stop(watch: Watching, app: str, view: str) -> HTMLResponse:
    """Stop a rebuild. What it has built is kept, and resumed next time."""
    watch.processes.stop(app, view)
    return _done(f"Asked the rebuild of {view} to stop. The next one resumes it.")


def rebuilds(watch: Watch, now: PipelineNow) -> Node:
    """The views of an application that can be rebuilt, each with its last rebuild."""
    if now.declared is None or not now.declared.views:
        return None
    read_only = watch.handles.settings.read_only
    content = [
        _one(now, view, watch.processes.of(now.app, view), read_only=read_only)
        for view in now.declared.views
    ]
    return section(
        "Rebuild",
        h.p(".hint")[
            "Computes a view anew from the log, beside the live one, and shows what would change."
        ],
        content,
    )


def difference_of(started: Started) -> Difference | None:
    """The differences that a rebuild has printed; None as long as there is no end of them."""
    found = [json.loads(line) for line in started.printed if line.startswith("{")]
    if not found or "switched" not in found[-1]:
        return None
    return Difference(found[-1], [each for each in found if "change" in each])


def _one(now: PipelineNow, view: str, started: Started | None, *, read_only: bool) -> Element:
    alive = started is not None and started.alive
    found = None if started is None or alive else difference_of(started)
    path = f"/pipelines/{now.app}/rebuild/{view}"
    return h.div(".rebuild", data_rebuild=view)[
        h.h3[view, " ", _state(started, found)],
        started is not None and alive and h.p(".hint")[_progress(started)],
        started is not None and started.failed and _failed(started.reason),
        found is not None and [h.p[f"{found.words}."], _changes(found)],
        not read_only
        and h.div(".buttons")[
            not alive
            and _button(
                path,
                "Rebuild and compare",
                f"Compute {view} again from the log? It takes as long as reading all of it. "
                "Nothing is replaced.",
            ),
            alive and _button(f"{path}/stop", "Stop", ""),
            found is not None
            and not found.switched
            and _button(
                f"{path}/switch",
                "Switch to the new version",
                f"Replace the live version of {view}? {now.app} must not run meanwhile.",
                "danger",
            ),
        ],
    ]


def _state(started: Started | None, found: Difference | None) -> Node:
    if started is None:
        return None
    if started.alive:
        return badge("rebuilding", "warn")
    if started.failed:
        return badge("failed", "bad")
    if found is None:
        return badge("stopped", "muted")
    return badge("switched", "good") if found.switched else badge("compared", "good")


def _progress(started: Started) -> str:
    lines = list(started.lines)
    return lines[-1] if lines else "Spark takes some seconds to start."


def _failed(reason: str) -> Element:
    first, _, rest = reason.partition("\n")
    return failure(first, rest.replace("  → ", "") or None)


def _changes(found: Difference) -> Node:
    if not found.rows:
        return h.p(".empty")["The new version is the same as the live one."]
    return table(
        ("row", "change", "before", "after"),
        [
            (
                _values(change["key"]),
                badge(change["change"], _KINDS[change["change"]]),
                _values(change["before"]),
                _values(change["after"]),
            )
            for change in found.rows
        ],
        caption="The first rows that differ.",
    )


def _values(row: Mapping[str, Any] | None) -> Node:
    if not row:
        return "–"
    return [h.div[f"{name} ", h.strong[cell(value, name)]] for name, value in row.items()]


def _button(path: str, text: str, question: str, kind: str = "") -> Element:
    return h.form(
        hx_post=path, hx_target="#outcome", hx_swap="innerHTML", data_confirm=question or None
    )[h.button(type="submit", class_=kind or None)[text]]


def _known(watch: Watch, app: str, view: str) -> None:
    declared = watch.handles.settings.declared.get(app)
    views = () if declared is None else tuple(declared.views)
    if declared is not None and view not in views:
        raise UnknownView(
            f"Application {app!r} has no view {view[:80]!r}",
            hint=f"There are: {', '.join(views) or 'none'}",
        )


def _done(text: str) -> HTMLResponse:
    return fragment(h.div(".success")[h.p[text]])
