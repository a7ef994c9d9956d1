"""Consumer groups: members, assignment, lag now and over time, and reset."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import anyio.to_thread
import htpy as h
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Node
from starlette.responses import HTMLResponse

from headrace.clock import SECOND, SystemClock, to_text
from headrace.errors import InvalidPosition
from headrace.log import GroupState, Log, parse_position
from headrace.studio.live.following import following
from headrace.studio.live.handles import Opened
from headrace.studio.live.histories import Sample, histories_of, place_of
from headrace.studio.live.ingest import body_of
from headrace.studio.live.links import address, pager
from headrace.studio.pages import Fact, badge, facts, fragment, live, page, section, table
from headrace.wording import count, many, span

router = APIRouter()

PAGE = 100
_LINES = 6
"""Partitions that a chart shows."""


@router.get("/groups", include_in_schema=False)
def groups(request: Request, opened: Opened) -> HTMLResponse:
    """The list of groups."""
    return page(
        request,
        "Consumer groups",
        h.p(".lead")["Members of a group share the partitions of their topics. Lag is what waits."],
        live("/live/groups", _listed(opened.log), id="groups"),
    )


@router.get("/live/groups", include_in_schema=False, response_class=EventSourceResponse)
async def groups_live(request: Request, opened: Opened) -> AsyncIterator[ServerSentEvent]:
    """The list of groups, whenever it changes."""
    async for event in following(request, lambda: _listed(opened.log), every=1.0):
        yield event


@router.get("/api/groups", tags=["groups"])
def groups_json(opened: Opened) -> list[dict[str, Any]]:
    """The consumer groups with their lag."""
    return [opened.log.group(name).summary() for name in opened.log.groups()]


@router.get("/api/groups/{name}", tags=["groups"])
def group_json(opened: Opened, name: str) -> dict[str, Any]:
    """A group: its members, its partitions and their lag."""
    state = opened.log.group(name)
    members = [
        {
            "id": each.id,
            "instance": each.instance,
            "topics": list(each.topics),
            "partitions": [list(place) for place in each.partitions],
            "heartbeat": None if each.heartbeat is None else to_text(each.heartbeat),
        }
        for each in state.members
    ]
    return state.summary() | {
        "members": members,
        "lags": [dataclasses.asdict(lag) for lag in state.lags],
    }


@router.get("/groups/{name}", include_in_schema=False)
def group(request: Request, opened: Opened, name: str) -> HTMLResponse:
    """The page of a group."""
    state = opened.log.group(name)
    return page(
        request,
        name,
        live(f"/groups/{name}/live?page={_page(request)}", _group(request, state), id="group"),
        _reset_form(state, read_only=opened.settings.read_only),
    )


@router.get("/groups/{name}/live", include_in_schema=False, response_class=EventSourceResponse)
async def group_live(request: Request, opened: Opened, name: str) -> AsyncIterator[ServerSentEvent]:
    """The page of a group, once a second."""
    async for event in following(
        request, lambda: _group(request, opened.log.group(name)), every=1.0
    ):
        yield event


@router.post("/groups/{name}/reset", include_in_schema=False)
async def reset(request: Request, opened: Opened, name: str) -> HTMLResponse:
    """Move the offsets of a group without members."""
    given = dict(parse_qsl((await body_of(request)).decode(errors="replace")))

    def work() -> dict[int, int]:
        opened.log.group(name)  # a new name would make a new group
        if not (topic := given.get("topic", "").strip()):
            raise InvalidPosition("No topic was chosen", hint="Name the topic to reset")
        position = parse_position(given.get("at", "").strip() or given.get("to", ""))
        return opened.log.reset_group(name, topic, position)

    moved = await anyio.to_thread.run_sync(work)
    rows = [(str(partition), count(offset)) for partition, offset in sorted(moved.items())]
    return fragment(
        h.div(".success", role="status")[h.p[f"Reset {many(len(moved), 'partition')}."]],
        table(("partition", "offset"), rows[:PAGE], numeric=("partition", "offset")),
    )


def _page(request: Request) -> int:
    text = request.query_params.get("page", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 10**6 else 1


def _listed(log: Log) -> Node:
    states = [log.group(name) for name in log.groups()]
    rows = [
        (
            h.a(href=f"/groups/{state.name}")[state.name],
            _activity(state),
            count(len(state.members)),
            _topic_links(state),
            h.span(class_="k-warn" if state.lag else "k-good")[count(state.lag)],
            span(state.seconds),
        )
        for state in states
    ]
    return table(
        ("group", "state", "members", "topics", "lag", "behind"),
        rows,
        numeric=("members", "lag", "behind"),
        empty="There are no groups yet. A consumer with a group makes one.",
    )


def _activity(state: GroupState) -> Node:
    return badge("active", "good") if state.members else badge("no members", "muted")


def _topic_links(state: GroupState) -> Node:
    return [
        [", " if place else "", h.a(href=f"/topics/{name}")[name]]
        for place, name in enumerate(state.topics)
    ]


def _group(request: Request, state: GroupState) -> Node:
    return [
        facts(
            (
                Fact("members", count(len(state.members)), "good" if state.members else "warn"),
                Fact("lag", count(state.lag), "warn" if state.lag else "good"),
                Fact("behind", span(state.seconds)),
                Fact("generation", count(state.generation), hint="The number of rebalances"),
                Fact("assignor", state.assignor or "–"),
            )
        ),
        section("Lag over time", _chart(state, histories_of(request).look(state))),
        section("Members", _members(state)),
        section("Lag by partition", _lags(state, _page(request))),
    ]


def _chart(state: GroupState, samples: list[Sample]) -> Node:
    """The total, and the partitions that lag most. It starts when somebody first looks."""
    worst = sorted(state.lags, key=lambda lag: lag.records, reverse=True)[:_LINES]
    places = sorted(place_of(lag) for lag in worst) if len(state.lags) > 1 else []
    rows: list[list[float | None]] = [
        [moment, sum(lags.values()), *(lags.get(place) for place in places)]
        for moment, lags in samples
    ]
    if len(rows) == 1:
        rows.insert(0, [samples[0][0] - 1, *(None for _ in rows[0][1:])])  # an axis needs two
    series = {"labels": ["time", "lag", *places], "rows": rows}
    return [
        h.div(".series", {"hx-morph-skip-children": ""}, data_series=json.dumps(series)),
        h.p(".hint")[
            "Sampled each second since somebody first looked at this page, for up to ten minutes."
        ],
    ]


def _members(state: GroupState) -> Node:
    now = SystemClock().now()
    rows = [
        (
            h.code[each.id],
            ", ".join(f"{topic}/{partition}" for topic, partition in each.partitions[:PAGE])
            if each.partitions
            else badge("idle: more members than partitions", "warn"),
            "–"
            if each.heartbeat is None
            else f"{span(max(0, now - each.heartbeat) // SECOND)} ago",
        )
        for each in state.members
    ]
    return table(
        ("member", "partitions", "last heartbeat"),
        rows,
        empty="No members: nobody is reading.",
    )


def _lags(state: GroupState, number: int) -> Node:
    pages = max(1, -(-len(state.lags) // PAGE))
    number = min(number, pages)
    rows = [
        (
            h.a(href=address(f"/topics/{lag.topic}", {"partition": lag.partition}))[place_of(lag)],
            count(lag.committed),
            count(lag.end),
            h.span(class_="k-warn" if lag.records else "k-good")[count(lag.records)],
            span(lag.seconds),
            h.code[lag.member] if lag.member else "–",
        )
        for lag in state.lags[(number - 1) * PAGE : number * PAGE]
    ]
    return [
        table(
            ("partition", "committed", "end", "lag", "behind", "member"),
            rows,
            numeric=("committed", "end", "lag", "behind"),
        ),
        pager(f"/groups/{state.name}", {}, "page", number, pages),
    ]


def _reset_form(state: GroupState, *, read_only: bool) -> Node:
    if read_only:
        return section("Reset", h.p(".empty")["This studio is read-only."])
    topics = state.topics
    return section(
        "Reset",
        h.p(".hint")["Moves the offsets of a group that has no members. Stop its consumers first."],
        h.form(
            ".row",
            hx_post=f"/groups/{state.name}/reset",
            hx_target="#reset",
            data_confirm=f"Move the offsets of group {state.name}? It reads from there next.",
        )[
            h.label["Topic", h.select(name="topic")[[h.option(value=t)[t] for t in topics]]],
            h.label[
                "To",
                h.select(name="to")[
                    h.option(value="earliest")["earliest"], h.option(value="latest")["latest"]
                ],
            ],
            h.label[
                "or to",
                h.input(
                    type="text", name="at", size="24", placeholder="an offset or a time, if given"
                ),
            ],
            h.button(".danger", type="submit")["Reset"],
        ],
        h.div("#reset", aria_live="polite"),
    )
