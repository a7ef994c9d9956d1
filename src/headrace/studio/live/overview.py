"""The first page: the data flow as one picture, from topics through steps to views and outputs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

import htpy as h
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.errors import HeadraceError, UnknownTopic
from headrace.log import Capability, Log
from headrace.plan.steps import dead_letters_of
from headrace.store.changelog import topic_of as changelog_of
from headrace.studio.learn.drawing import panel_of
from headrace.studio.live.cells import path_of
from headrace.studio.live.drawn import clock_time, kind_of, listed, wait_list
from headrace.studio.live.flow import flow_of
from headrace.studio.live.following import following
from headrace.studio.live.past import (
    NOT_KEPT,
    ViewThen,
    pipeline_then,
    records_then,
    views_then,
)
from headrace.studio.live.pipeline_states import PipelineNow, Watch, Watching
from headrace.studio.pages import live, page, section, table

router = APIRouter()

_TOPICS = 50


@router.get("/", include_in_schema=False)
def overview(
    request: Request,
    watch: Watching,
    asof: Annotated[int | None, Query(ge=0, le=1 << 62)] = None,
) -> HTMLResponse:
    """The first page: the system now, or as of a commit."""
    if not _has_topics(watch) and not watch.handles.settings.declared:
        return page(request, "Welcome", _welcome(watch.handles.settings.log))
    head = _head(watch)
    shown = None if asof is None or head is None else min(asof, head)
    return page(
        request,
        "Overview",
        _slider(head, shown),
        h.div("#held")[
            live("/overview/live", _content(watch), id="overview")
            if shown is None
            else h.div("#overview", data_asof=str(shown))[_past(watch, shown)]
        ],
        wide=True,
    )


@router.get("/overview/live", include_in_schema=False, response_class=EventSourceResponse)
async def overview_live(request: Request, watch: Watching) -> AsyncIterator[ServerSentEvent]:
    """The picture, whenever it changes."""
    async for event in following(request, lambda: _content(watch), every=0.5):
        yield event


def _has_topics(watch: Watch) -> bool:
    try:
        return bool(watch.handles.log.topics())
    except HeadraceError:
        return False


def _head(watch: Watch) -> int | None:
    """The last commit of the log; None if it has none, or cannot have any."""
    try:
        log = watch.handles.log
    except HeadraceError:
        return None
    return (log.head() or None) if Capability.NUMBERED_APPENDS in log.capabilities else None


def _slider(head: int | None, shown: int | None) -> Node:
    """The slider of commits, for logs that have them."""
    if head is None:
        return None
    return h.form(
        "#history",
        {"hx-get": "/", "hx-trigger": "input delay:60ms, submit"},
        action="/",
        method="get",
        hx_target="#held",
        hx_select="#held",
        hx_swap="outerHTML",
        hx_sync="this:replace",
        data_address=True,
    )[
        h.label(".field")[
            h.span[f"As of commit (0 to {head:,})"],
            h.input(
                type="range",
                name="asof",
                min="0",
                max=str(head),
                value=str(head if shown is None else shown),
            ),
        ],
        h.noscript[h.button(type="submit")["Show"]],
    ]


def _content(watch: Watch) -> Node:
    try:
        log = watch.handles.log
    except HeadraceError as error:
        return [h.p(".lead")[error.message], _start_hint(watch)]
    found = watch.all()
    records = _records(log)
    flow = flow_of(found, records)
    troubled = [now for now in found if now.declared is not None and _trouble(now)]
    return [
        _now_line(log),
        flow is not None and panel_of(flow),
        bool(troubled)
        and section(
            "Why something waits",
            (
                [h.h3[h.a(href=f"/pipelines/{now.app}")[now.app]], wait_list(now)]
                for now in troubled
            ),
        ),
        section("Pipelines", listed(found)),
        _others(found, records),
    ]


def _now_line(log: Log) -> Element:
    if Capability.NUMBERED_APPENDS not in log.capabilities:
        return h.p(".note")["Now. The past is shown of embedded logs only."]
    head = log.head()
    return h.p(".note")[h.strong["Now"], f", after commit {head:,}{_made(log, head)}."]


def _made(log: Log, commit: int) -> str:
    """The time of a commit, if it is known."""
    try:
        return f" of {clock_time(log.commit_time(commit))}"
    except HeadraceError:
        return ""


def _past(watch: Watch, commit: int) -> Node:
    """The system as of a commit, as far as it is kept."""
    handles = watch.handles
    log, declared = handles.log, handles.settings.declared
    found = [pipeline_then(log, app, declared.get(app), commit) for app in watch.apps()]
    records = records_then(log, [topic.name for topic in log.topics()[:_TOPICS]], commit)
    flow = flow_of(found, records)
    return [
        h.p(".note", role="status")[
            h.strong[f"As of commit {commit:,}"],
            f"{_made(log, commit)}. ",
            h.a(href="/")["Back to now"],
        ],
        flow is not None and panel_of(flow),
        section(
            "Pipelines",
            h.p(".hint")["Steps have the batches that read no further than this commit."],
            listed(found),
            [h.p(".note")[now.app, ": ", now.unknown] for now in found if now.unknown],
        ),
        section("Views", _views_then(views_then(log, found, commit), commit)),
        _others(found, records),
        section("What is not kept", h.ul[(h.li[each] for each in NOT_KEPT)]),
    ]


def _views_then(found: Sequence[ViewThen], commit: int) -> Node:
    return table(
        ("view", "application", "changes so far", "rows"),
        [
            (
                each.name,
                each.app,
                "not kept" if each.changes is None else f"{each.changes:,}",
                "no changelog"
                if each.changes is None
                else h.a(href=f"{path_of(each.app, each.name)}?commit={commit}")["as they were"],
            )
            for each in found
        ],
        numeric=("changes so far",),
        empty="There was no view.",
    )


def _trouble(now: PipelineNow) -> bool:
    return any(kind_of(now, step) == "bad" for step in now.steps)


def _records(log: Log) -> dict[str, int]:
    """The records of each topic; of the first ones if there are very many."""
    found = {}
    for topic in log.topics()[:_TOPICS]:
        try:
            found[topic.name] = log.topic(topic.name).records
        except UnknownTopic:  # deleted meanwhile
            continue
    return found


def _others(found: Sequence[PipelineNow], records: Mapping[str, int]) -> Node:
    """Topics that no pipeline reads or writes."""
    used = {name for now in found for step in now.steps for name in (*step.reads, *step.outputs)}
    used |= {dead_letters_of(now.app) for now in found}
    used |= {changelog_of(now.app, step.name) for now in found for step in now.steps}
    rest = {name: count for name, count in records.items() if name not in used}
    if not rest:
        return None
    return section(
        "Other topics",
        table(
            ("topic", "records"),
            [(name, f"{count:,}") for name, count in rest.items()],
            numeric=("records",),
        ),
    )


def _start_hint(watch: Watch) -> Node:
    names = watch.handles.settings.declared
    return h.p[
        "The log is made by the first run: start ",
        ([h.a(href=f"/pipelines/{name}")[name], " "] for name in names),
    ]


def _welcome(log: str) -> Node:
    return [
        h.p(".lead")["There is nothing in ", h.code[log], " yet. Three things to do:"],
        h.div(".cards")[
            _card(
                "1",
                "Watch the demo",
                "A live pipeline that counts page views, with its own studio.",
                h.code["headrace demo"],
            ),
            _card(
                "2",
                "Write events, and run a pipeline on them",
                "A topic is made by the application that declares it.",
                h.pre["headrace studio pipelines/pageviews.py:app\nheadrace produce pageviews"],
            ),
            h.a(".card", href="/learn")[
                h.span(".ordinal")["3"],
                h.strong["Learn streaming"],
                h.span["Simulations that run the real operators. They need no log."],
            ],
        ],
    ]


def _card(number: str, title: str, text: str, command: Node) -> Element:
    return h.div(".card")[h.span(".ordinal")[number], h.strong[title], h.span[text], h.div[command]]
