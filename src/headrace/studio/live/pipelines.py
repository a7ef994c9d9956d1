"""The pages of pipelines: their state, the account of their rows, and what they wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import htpy as h
from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.application.show import look
from headrace.application.shown import text_of
from headrace.errors import UnknownPage, Unsupported
from headrace.log import Capability
from headrace.pipeline.app import App
from headrace.plan.steps import steps_of
from headrace.studio.live.crashing import Crashes
from headrace.studio.live.drawn import (
    crash_of,
    durations,
    listed,
    series,
    state_badge,
    steps_table,
    wait_list,
)
from headrace.studio.live.following import following
from headrace.studio.live.handles import Handles
from headrace.studio.live.pipeline_states import PipelineNow, Watching
from headrace.studio.live.rebuilding import rebuilds
from headrace.studio.live.step_output import stored_sample
from headrace.studio.pages import failure, fragment, live, page, section, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

router = APIRouter()

_SAMPLE = 20


def _crashes(request: Request) -> Crashes:
    found = request.app.state.crashes
    assert isinstance(found, Crashes)
    return found


Crashing = Annotated[Crashes, Depends(_crashes)]


@router.get("/pipelines", include_in_schema=False)
def pipelines(request: Request, watch: Watching) -> HTMLResponse:
    """All applications of the log."""
    return page(
        request,
        "Pipelines",
        h.p(".lead")[
            "Applications that the studio was given, and those that have results of this log."
        ],
        live("/pipelines/live", listed(watch.all()), id="pipelines"),
    )


@router.get("/pipelines/live", include_in_schema=False, response_class=EventSourceResponse)
async def pipelines_live(request: Request, watch: Watching) -> AsyncIterator[ServerSentEvent]:
    """The list of pipelines, whenever it changes."""
    async for event in following(request, lambda: listed(watch.all())):
        yield event


@router.get("/pipelines/{app}", include_in_schema=False)
def pipeline(request: Request, watch: Watching, crashes: Crashing, app: str) -> HTMLResponse:
    """One application."""
    _known(watch, app)
    declared = watch.handles.settings.declared.get(app)
    return page(
        request,
        app,
        h.div("#outcome", role="status"),
        live(f"/pipelines/{app}/live", _content(watch, crashes, app), id="pipeline"),
        declared is not None and _explained(declared, app),
        wide=True,
    )


@router.get("/pipelines/{app}/live", include_in_schema=False, response_class=EventSourceResponse)
async def pipeline_live(
    request: Request, watch: Watching, crashes: Crashing, app: str
) -> AsyncIterator[ServerSentEvent]:
    """The live part of an application's page."""
    render = partial(_content, watch, crashes, app)
    async for event in following(request, render, every=0.5):
        yield event


@router.get("/pipelines/{app}/sample/{step}", include_in_schema=False)
def sample(
    watch: Watching, app: str, step: str, rows: Annotated[int, Query(ge=1, le=200)] = _SAMPLE
) -> HTMLResponse:
    """Some rows of a step: computed from the newest rows of its topics, or those it has stored."""
    declared = watch.handles.settings.declared.get(app)
    found = (
        None
        if declared is None
        else next((each for each in steps_of(declared) if each.name == step), None)
    )
    if found is None:
        raise UnknownPage(f"There is no step {step!r} in {app!r}", hint="See its page")
    try:
        shown = look(
            found.stream, rows, first=False, log=watch.handles.log, rows=10_000, session=_no_spark
        )
    except Unsupported as error:
        return fragment(stored_sample(watch.handles, app, found, rows, error.message))
    made = table(
        shown.columns,
        [[text_of(row[name]) for name in shown.columns] for row in shown.rows],
        caption=f"{shown.caption}. Computed by the oracle in plain Python, newest first.",
        empty="The newest rows of its topics lead to no row of this step.",
    )
    return fragment(made)


@router.post("/pipelines/{app}/start", include_in_schema=False)
def start(watch: Watching, app: str) -> HTMLResponse:
    """Start an application that the studio was given."""
    started = watch.processes.start(app)
    return _done(f"Started {app}, as process {started.pid}. Spark takes some seconds.")


@router.post("/pipelines/{app}/stop", include_in_schema=False)
def stop(watch: Watching, app: str) -> HTMLResponse:
    """Stop an application that the studio started."""
    watch.processes.stop(app)
    return _done(f"Asked {app} to stop. The next run continues where it stopped.")


@router.post("/pipelines/{app}/drain", include_in_schema=False)
def drain(watch: Watching, app: str) -> HTMLResponse:
    """Close all windows of an application whose input has ended."""
    watch.processes.start(app, "drain")
    return _done(f"Draining {app}: it catches up, then closes all of its windows.")


@router.post("/pipelines/{app}/crash", include_in_schema=False)
def crash(crashes: Crashing, app: str) -> HTMLResponse:
    """Kill an application that the studio started with kill -9, and start it again."""
    made = crashes.crash(app)
    return _done(
        f"Killed process {made.killed} with kill -9, and started it again as {made.restarted}. "
        "The receipt follows below when it has recovered."
    )


def _content(watch: Watching, crashes: Crashes, app: str) -> Node:
    now = watch.now(app)
    return [
        h.p[
            state_badge(now.state),
            " ",
            now.state.word != "failed" and h.span(".hint")[now.state.details],
        ],
        now.state.word == "failed" and _failed(now.state.details),
        _buttons(now, watch.handles),
        crash_of(crashes.now(app)),
        section("Steps", steps_table(now)),
        section("What it waits for", wait_list(now)),
        section("Rows per second and lag", series(watch.samples(app))),
        section("Duration of batches", durations(now)),
        rebuilds(watch, now),
    ]


def _failed(reason: str) -> Element:
    first, _, rest = reason.partition("\n")
    return failure(f"It failed: {first}", rest.replace("  → ", "") or None)


def _buttons(now: PipelineNow, handles: Handles) -> Node:
    if now.declared is None:
        return h.p(".hint")[
            "It can be watched here, but not started or stopped: the studio was started without "
            "its name. See ",
            h.code["headrace studio MODULE:APP"],
            ".",
        ]
    if handles.settings.read_only:
        return h.p(".hint")["This studio is read-only."]
    counted = Capability.NUMBERED_APPENDS in handles.log.capabilities
    idle = now.state.word in ("stopped", "failed", "killed", "never run")
    name = now.app
    return h.div(".buttons")[
        idle and _button(name, "start", "Start", "primary"),
        idle
        and now.state.word != "never run"
        and _button(
            name,
            "drain",
            "Drain",
            "",
            f"Close all windows of {name}? Rows that arrive for them later will be late.",
        ),
        now.state.ours
        and now.state.word != "stopping"
        and _button(name, "stop", "Stop", "", f"Stop {name}? The next run continues from there."),
        now.state.ours
        and now.state.word == "running"
        and counted
        and _button(
            name,
            "crash",
            "Crash it: kill -9",
            "danger",
            f"Kill {name} with kill -9? It starts again by itself, and you get a receipt.",
        ),
    ]


def _button(app: str, verb: str, text: str, kind: str, question: str = "") -> Element:
    return h.form(
        hx_post=f"/pipelines/{app}/{verb}",
        hx_target="#outcome",
        hx_swap="innerHTML",
        data_confirm=question or None,
    )[h.button(type="submit", class_=kind or None, name="verb", value=verb)[text]]


def _done(text: str) -> HTMLResponse:
    return fragment(h.div(".success")[h.p[text]])


def _explained(declared: App, app: str) -> Element:
    """The explanation of each step, and a sample of its rows on demand."""
    return section(
        "What each step does",
        [
            h.details(".card")[
                h.summary[step.name],
                h.dl(".explained")[((h.dt[word], h.dd[text]) for word, text in step.facts)],
                h.form(
                    hx_get=f"/pipelines/{app}/sample/{step.name}",
                    hx_target=f"#sample-{place}",
                    hx_swap="innerHTML",
                )[h.button(type="submit")["Show some of its rows"]],
                h.div(id=f"sample-{place}"),
            ]
            for place, step in enumerate(declared.explain().steps)
        ],
    )


def _known(watch: Watching, app: str) -> None:
    if app not in (apps := watch.apps()):
        there = ", ".join(apps) or "none yet"
        raise UnknownPage(f"There is no application {app!r}", hint=f"There are: {there}")


def _no_spark(reason: str) -> SparkSession | None:
    raise Unsupported(
        f"Only Spark can compute these rows anew: {reason}",
        hint="headrace show MODULE:APP shows them in a terminal",
    )
