"""Topics: all of them, and one with its partitions, records and settings."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import htpy as h
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Node
from starlette.responses import HTMLResponse

from headrace.clock import to_text
from headrace.errors import InvalidPosition
from headrace.log import Capability, Commit, Log, Topic, TopicSettings, TopicState
from headrace.schema.ddl import format_schema
from headrace.studio.live.browsing import Wanted
from headrace.studio.live.following import following
from headrace.studio.live.handles import Opened
from headrace.studio.live.links import address, pager
from headrace.studio.live.messages import filters, messages, slider, wanted_of
from headrace.studio.live.producing import way_in
from headrace.studio.live.roles import DEAD, KINDS, role_of
from headrace.studio.pages import Fact, badge, facts, live, page, section, table
from headrace.wording import count, many, size, when

router = APIRouter()

PAGE = 100
"""Topics, and partitions, on a page."""


@router.get("/topics", include_in_schema=False)
def topics(request: Request, opened: Opened, q: str = "") -> HTMLResponse:
    """The list of topics."""
    number = _page(request)
    asked = {"q": q, "page": number if number > 1 else ""}
    return page(
        request,
        "Topics",
        h.p(".lead")["Every event is in a topic. Everything else is derived from them."],
        h.form(".row", action="/topics", method="get", role="search")[
            h.label["Name", h.input(type="search", name="q", value=q, placeholder="contains")],
            h.button(type="submit")["Filter"],
        ],
        live(address("/live/topics", asked), _listed(opened.log, q, number), id="topics"),
        wide=True,
    )


@router.get("/live/topics", include_in_schema=False, response_class=EventSourceResponse)
async def topics_live(
    request: Request, opened: Opened, q: str = ""
) -> AsyncIterator[ServerSentEvent]:
    """The list of topics, whenever it changes."""
    number = _page(request)
    render = partial(_listed, opened.log, q, number)
    async for event in following(request, render, every=1.0):
        yield event


@router.get("/api/topics", tags=["topics"])
def topics_json(request: Request, opened: Opened, q: str = "") -> dict[str, Any]:
    """The topics whose name contains `q`, 100 on a `page`."""
    names, number, pages = _names(opened.log, q, _page(request))
    found = [_state_json(opened.log.topic(name)) for name in names]
    return {"topics": found, "page": number, "pages": pages}


@router.get("/api/topics/{name}", tags=["topics"])
def topic_json(opened: Opened, name: str) -> dict[str, Any]:
    """A topic: its declaration, settings and partitions."""
    state = opened.log.topic(name)
    by_partition = [
        dataclasses.asdict(each) | {"last_append": _moment(each.last_append)}
        for each in state.partitions
    ]
    return _state_json(state) | {"by_partition": by_partition}


@router.get("/topics/{name}", include_in_schema=False)
def topic(
    request: Request,
    opened: Opened,
    name: str,
    at: str = "",
    partition: str = "",
    key: str = "",
    text: str = "",
    asof: str = "",
    cursor: str = "",
    follow: str = "",
) -> HTMLResponse:
    """The page of a topic."""
    log = opened.log
    wanted = wanted_of(at, partition, key, text, asof, cursor)
    state = log.topic(name)
    follows = bool(follow) and wanted.asof is None
    declared = state.topic
    role = role_of(declared)
    read_only = opened.settings.read_only
    return page(
        request,
        name,
        h.p(".lead")[
            role and [badge(role, KINDS[role]), " "],
            h.code["raw bytes" if declared.schema is None else format_schema(declared.schema)],
        ],
        not follows and slider(log, state, wanted),
        h.div("#held")[
            _facts(log, state, wanted),
            section(
                "Records",
                filters(state, wanted, follows=follows),
                role == DEAD and h.div("#again", aria_live="polite"),
                messages(log, state, wanted, follows=follows, read_only=read_only),
            ),
        ],
        way_in(declared, opened.settings),
        _partitions(request, state, wanted),
        _settings(declared.settings),
        wide=True,
    )


def _page(request: Request) -> int:
    text = request.query_params.get("page", "")
    return int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else 1


def _names(log: Log, q: str, number: int) -> tuple[list[str], int, int]:
    """The names on a page, its number, and the number of pages."""
    wanted = q.strip().casefold()
    names = [each.name for each in log.topics() if wanted in each.name.casefold()]
    pages = max(1, -(-len(names) // PAGE))
    number = min(number, pages)
    return names[(number - 1) * PAGE : number * PAGE], number, pages


def _listed(log: Log, q: str, number: int) -> Node:
    names, number, pages = _names(log, q, number)
    return [
        table(
            (
                *("topic", "role", "partitions", "records", "bytes", "retention"),
                *("event time", "frontier"),
            ),
            [_line(log.topic(name)) for name in names],
            numeric=("partitions", "records", "bytes"),
            empty="No topic matches." if q else "There are no topics yet.",
        ),
        pager("/topics", {"q": q}, "page", number, pages),
    ]


def _line(state: TopicState) -> tuple[Node, ...]:
    topic, role = state.topic, role_of(state.topic)
    return (
        h.a(href=f"/topics/{topic.name}")[topic.name],
        role and badge(role, KINDS[role]),
        count(topic.partitions),
        count(state.records),
        size(state.bytes),
        _retention(topic.settings),
        topic.event_time or "–",
        when(state.frontier),
    )


def _retention(settings: TopicSettings) -> str:
    text = settings.to_text()
    kept = [
        text["retention"] if settings.retention is not None else "",
        size(settings.retention_bytes) if settings.retention_bytes is not None else "",
    ]
    limits = " or ".join(filter(None, kept)) if settings.deletes else ""
    if settings.compacts:
        return f"compacted, {limits}" if limits else "compacted"
    return limits or "forever"


def _facts(log: Log, state: TopicState, wanted: Wanted) -> Node:
    """The numbers of a topic, now or as of a commit."""
    topic = state.topic
    found = [Fact("partitions", count(topic.partitions))]
    if wanted.asof is None:
        found += [
            Fact("records", count(state.records)),
            Fact("bytes", size(state.bytes)),
            Fact("segments", count(_segments(state))),
            Fact("frontier", when(state.frontier), hint="The highest event time"),
        ]
    else:
        log.require(Capability.NUMBERED_APPENDS)
        commit = Commit(wanted.asof)
        held = sum(
            max(0, log.offset_at(topic.name, each.partition, commit) - each.first)
            for each in state.partitions
        )
        found += [
            Fact("records", count(held), hint="Of those that are still kept"),
            Fact("frontier", when(log.frontier(topic.name, wanted.asof))),
            Fact("committed", _commit_time(log, wanted.asof)),
        ]
    found += [
        Fact("key", topic.key or ("bytes" if topic.schema is None else "none")),
        Fact("event time", topic.event_time or "none"),
        Fact("retention", _retention(topic.settings)),
    ]
    return facts(found)


def _commit_time(log: Log, commit: int) -> str:
    with contextlib.suppress(InvalidPosition):
        return when(log.commit_time(commit))
    return "not kept"


def _segments(state: TopicState) -> int | None:
    known = [each.segments for each in state.partitions if each.segments is not None]
    return sum(known) if len(known) == len(state.partitions) else None


def _partitions(request: Request, state: TopicState, wanted: Wanted) -> Node:
    name = state.topic.name
    pages = max(1, -(-len(state.partitions) // PAGE))
    number = min(_page(request), pages)
    shown = state.partitions[(number - 1) * PAGE : number * PAGE]
    rows = [
        (
            h.a(href=address(f"/topics/{name}", {"partition": each.partition}))[
                str(each.partition)
            ],
            count(each.first),
            count(each.end),
            count(each.end - each.first),
            count(each.segments),
            count(each.tiered_segments),
            size(each.bytes),
            when(each.last_append),
        )
        for each in shown
    ]
    columns = ("partition", "first", "end", "records", "segments", "tiered", "bytes", "last append")
    return section(
        "Partitions",
        table(columns, rows, numeric=columns[:-1]),
        pager(f"/topics/{name}", wanted.parameters(), "page", number, pages),
        id="partitions",
    )


def _settings(settings: TopicSettings) -> Node:
    usual = TopicSettings().to_text()
    rows = [
        (h.code[name], h.strong[value] if value != usual[name] else value, usual[name])
        for name, value in settings.to_text().items()
    ]
    changed = sum(value != usual[name] for name, value in settings.to_text().items())
    return section(
        "Settings",
        h.details[
            h.summary[f"{many(len(rows), 'setting')}, {changed} changed"],
            table(("setting", "value", "default"), rows),
        ],
    )


def _state_json(state: TopicState) -> dict[str, Any]:
    topic: Topic = state.topic
    return {
        "name": topic.name,
        "role": role_of(topic) or None,
        "partitions": topic.partitions,
        "schema": None if topic.schema is None else format_schema(topic.schema),
        "key": topic.key,
        "event_time": topic.event_time,
        "settings": topic.settings.to_text(),
        "records": state.records,
        "bytes": state.bytes,
        "frontier": _moment(state.frontier),
    }


def _moment(micros: int | None) -> str | None:
    return None if micros is None else to_text(micros).replace(" ", "T")
