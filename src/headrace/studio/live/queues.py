"""Work queues: messages waiting and in flight, leases, redeliveries, dead letters and redrive."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import parse_qsl

import anyio.to_thread
import htpy as h
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.errors import InvalidPosition, LogError
from headrace.log import Capability, Log, parse_position
from headrace.log.queueing import QueueRow, QueueState
from headrace.queue import PastState, open_queue, redrive, state_at
from headrace.studio.live.following import following
from headrace.studio.live.handles import Opened
from headrace.studio.live.ingest import body_of
from headrace.studio.live.queue_now import age_of, look, now, settings_of
from headrace.studio.pages import Fact, facts, fragment, live, page, section, table
from headrace.wording import count, many

router = APIRouter()


@router.get("/queues", include_in_schema=False)
def queues(request: Request, opened: Opened) -> HTMLResponse:
    """The list of queues."""
    return page(
        request,
        "Queues",
        h.p(".lead")[
            "Each message is handed to one worker under a lease, and is gone when it is accepted. "
            "The history stays in the topic."
        ],
        live("/live/queues", _listed(opened.log), id="queues"),
        wide=True,
    )


@router.get("/live/queues", include_in_schema=False, response_class=EventSourceResponse)
async def queues_live(request: Request, opened: Opened) -> AsyncIterator[ServerSentEvent]:
    """The list of queues, whenever it changes."""
    async for event in following(request, lambda: _listed(opened.log), every=1.0):
        yield event


@router.get("/api/queues", tags=["queues"])
def queues_json(opened: Opened) -> list[dict[str, Any]]:
    """The queues, with the counts of their messages."""
    return [_plain(state) for _, state in _all(opened.log)]


@router.get("/api/queues/{name}", tags=["queues"])
def queue_json(opened: Opened, name: str) -> dict[str, Any]:
    """A queue: its messages, settings, leases, and the reasons of its dead letters."""
    row, state, leases, dead = look(opened.log, name)
    return _plain(state) | {
        "topic": row.topic,
        "settings": row.settings.to_text(),
        "leases": [dataclasses.asdict(lease) for lease in leases],
        "reasons": dict(Counter(each.reason for each in dead).most_common()),
    }


@router.get("/queues/{name}", include_in_schema=False)
def queue(
    request: Request,
    opened: Opened,
    name: str,
    at: Annotated[str, Query(description="A commit or a time")] = "",
) -> HTMLResponse:
    """The page of a queue."""
    row = opened.log.queues().find(name)
    return page(
        request,
        name,
        live(f"/queues/{name}/live", now(opened.log, name), id="queue"),
        _redrive_form(row, read_only=opened.settings.read_only),
        _past(opened.log, row, at.strip()),
        section("Settings", settings_of(row)),
        wide=True,
    )


@router.get("/queues/{name}/live", include_in_schema=False, response_class=EventSourceResponse)
async def queue_live(request: Request, opened: Opened, name: str) -> AsyncIterator[ServerSentEvent]:
    """The page of a queue, once a second."""
    async for event in following(request, lambda: now(opened.log, name), every=1.0):
        yield event


@router.post("/queues/{name}/redrive", include_in_schema=False)
async def redrive_dead(request: Request, opened: Opened, name: str) -> HTMLResponse:
    """Let dead letters wait again."""
    given = dict(parse_qsl((await body_of(request)).decode(errors="replace")))

    def work() -> int:
        upto = parse_position(_commit_or_time(given.get("asof", "")) or "latest")
        with open_queue(opened.log, name) as found:
            return redrive(found, reason=given.get("reason", "").strip() or None, upto=upto)

    done = await anyio.to_thread.run_sync(work)
    return fragment(h.div(".success", role="status")[h.p[f"{many(done, 'message')} wait again."]])


def _commit_or_time(text: str) -> str:
    """A position that was typed: a bare number is a commit."""
    text = text.strip()
    return f"commit:{text}" if text.isascii() and text.isdigit() else text


def _all(log: Log) -> list[tuple[QueueRow, QueueState]]:
    queues = log.queues()
    return [(row, queues.state(row)) for row in queues.all()]


def _plain(state: QueueState) -> dict[str, Any]:
    sums = {"waiting": state.waiting, "unfinished": state.unfinished}
    return dataclasses.asdict(state) | sums


def _listed(log: Log) -> Node:
    if Capability.QUEUES not in log.capabilities:
        return h.p(".empty")[
            "On Kafka a queue is a share group, whose state is the broker's: kafka-share-groups.sh"
        ]
    rows = [
        (
            h.a(href=f"/queues/{row.name}")[row.name],
            h.a(href=f"/topics/{row.topic}")[row.topic],
            h.span(class_="k-warn" if state.waiting else "k-good")[count(state.waiting)],
            count(state.acquired),
            h.span(class_="k-bad" if state.dead else None)[count(state.dead)],
            age_of(state.oldest),
        )
        for row, state in _all(log)
    ]
    return table(
        ("queue", "topic", "waiting", "in flight", "dead letters", "oldest"),
        rows,
        numeric=("waiting", "in flight", "dead letters", "oldest"),
        empty=["There are no queues yet: ", h.code["headrace queue create NAME"]],
    )


def _redrive_form(row: QueueRow, *, read_only: bool) -> Node:
    if read_only:
        return section("Redrive", h.p(".empty")["This studio is read-only."])
    return section(
        "Redrive",
        h.p(".hint")[
            "Dead letters wait again, as if they were new. Without a choice, all of them."
        ],
        h.form(
            ".row",
            hx_post=f"/queues/{row.name}/redrive",
            hx_target="#redrive",
            data_confirm=f"Hand the dead letters of queue {row.name} out again?",
        )[
            h.label[
                "Whose reason has",
                h.input(type="text", name="reason", size="24", placeholder="a part of it"),
            ],
            h.label[
                "As of",
                h.input(type="text", name="asof", size="24", placeholder="a commit or a time"),
            ],
            h.button(".danger", type="submit")["Redrive"],
        ],
        h.div("#redrive", aria_live="polite"),
    )


def _past(log: Log, row: QueueRow, at: str) -> Element:
    return section(
        "As of a commit",
        h.form(
            ".row", action=f"/queues/{row.name}#as-of", method="get",
        )[
            h.label[
                "Commit or time",
                h.input(
                    type="text", name="at", size="24", value=at,
                    placeholder=f"up to {log.head():,}", required=True,
                ),
            ],
            h.button(type="submit")["Show"],
        ],
        bool(at) and _then(log, row, at),
        id="as-of",
    )  # fmt: skip


def _then(log: Log, row: QueueRow, at: str) -> Node:
    try:
        with open_queue(log, row.name) as found:
            past: PastState = state_at(found, parse_position(_commit_or_time(at)))
    except (InvalidPosition, LogError) as error:
        return h.div(".failure", role="alert")[h.p[error.message], h.p(".hint")[error.hint]]
    outcomes = [Fact(name, count(number)) for name, number in past.outcomes.items()]
    return [
        facts(
            (
                Fact("unfinished then", count(past.waiting)),
                Fact("dead letters then", count(past.dead), "bad" if past.dead else "good"),
                *outcomes,
            ),
            id="then",
        ),
        h.p(".hint")["Counted from the queue's journal, which has each settlement's commit."],
    ]
