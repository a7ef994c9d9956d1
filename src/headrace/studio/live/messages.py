"""Browse the records of a topic, follow them live, and download one whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import Response

from headrace.errors import InvalidSetting
from headrace.log import Capability, Log, Record, TopicState
from headrace.log.record_json import RecordFormat
from headrace.studio.live.browsing import PAGE, Found, Wanted, browse, ends_of, one_record
from headrace.studio.live.following import following
from headrace.studio.live.handles import Opened
from headrace.studio.live.links import address
from headrace.studio.live.records import records_table, whole_value
from headrace.studio.pages import live
from headrace.wording import many

router = APIRouter()

_MOST = 500

At = Annotated[
    str, Query(description="Start there, oldest first: earliest, an offset, a time or commit:N")
]
Partition = Annotated[str, Query(description="Only this partition")]
Key = Annotated[str, Query(description="Only records with this key")]
Text = Annotated[str, Query(description="Only records with this text in any column")]
AsOf = Annotated[str, Query(description="Only records up to this commit")]
Cursor = Annotated[str, Query(description="The `next` of the page before")]


def wanted_of(
    at: str = "",
    partition: str = "",
    key: str = "",
    text: str = "",
    asof: str = "",
    cursor: str = "",
    limit: int = PAGE,
) -> Wanted:
    """The records that an address asks for. A mistake in it raises in words."""
    if not 1 <= limit <= _MOST:
        raise InvalidSetting(f"limit cannot be {limit}", hint=f"Choose 1 to {_MOST}")
    return Wanted(
        at.strip(),
        _number("partition", partition),
        key,
        text,
        _number("asof", asof),
        cursor,
        limit,
    )


def _number(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isascii() or not text.strip().isdigit() or len(text) > 18:
        raise InvalidSetting(f"{name} cannot be {text!r}", hint="Use a whole number")
    return int(text)


@router.get("/api/topics/{name}/records", tags=["topics"])
def records(
    opened: Opened,
    name: str,
    at: At = "",
    partition: Partition = "",
    key: Key = "",
    text: Text = "",
    asof: AsOf = "",
    cursor: Cursor = "",
    limit: int = PAGE,
) -> dict[str, Any]:
    """Records of a topic, newest first, or from a position on. `next` continues.

    A search by key or text reads at most 200,000 rows. If it ends before it has a page, `next`
    searches on.
    """
    wanted = wanted_of(at, partition, key, text, asof, cursor, limit)
    state = opened.log.topic(name)
    found = browse(opened.log, state, wanted)
    format = RecordFormat(state.topic)
    return {
        "records": [{**format.fields(each), "commit": each.commit} for each in found.records],
        "next": found.cursor,
        "scanned": found.scanned,
        "notes": list(found.notes),
    }


@router.get("/topics/{name}/value", include_in_schema=False)
def value(opened: Opened, name: str, partition: int, offset: int, part: str = "value") -> Response:
    """The whole value or key of a record, as a file."""
    batch = one_record(opened.log, name, partition, offset)
    record = next(batch.records(as_text=True))
    content = whole_value(opened.log.topic(name).topic, record, part)
    return Response(
        content,
        media_type="text/plain; charset=utf-8",
        headers={
            "content-disposition": f'attachment; filename="{name}-{partition}-{offset}.txt"',
            "cache-control": "no-store",
        },
    )


@router.get("/topics/{name}/follow", include_in_schema=False, response_class=EventSourceResponse)
async def follow(
    request: Request,
    opened: Opened,
    name: str,
    partition: str = "",
    key: str = "",
    text: str = "",
) -> AsyncIterator[ServerSentEvent]:
    """The newest records of a topic, sent again whenever there are new ones."""
    wanted = wanted_of("", partition, key, text)
    render = newest(opened.log, name, wanted, again=not opened.settings.read_only)
    async for event in following(request, render):
        yield event


def newest(log: Log, name: str, wanted: Wanted, *, again: bool) -> Callable[[], Node]:
    """A function that renders the newest records. Each call reads only what is new."""
    kept: list[Record] = []
    ends: dict[int, int] | None = None
    shown = ""

    def render() -> Node:
        nonlocal kept, ends, shown
        state = log.topic(name)
        now = ends_of(state)
        if now != ends:
            if ends is not None and any(now.get(p, 0) < end for p, end in ends.items()):
                kept, ends = [], None  # it was deleted and created again
            kept = [*browse(log, state, wanted, ends).records, *kept][: wanted.limit]
            ends = now
            rows = records_table(state.topic, kept, again=again, empty="No record yet.")
            shown = str(h.fragment[rows])  # escaped text: a node can be rendered only once
        return shown

    return render


def messages(
    log: Log, state: TopicState, wanted: Wanted, *, follows: bool, read_only: bool
) -> Element:
    """The part of a topic's page that has its records."""
    name = state.topic.name
    path = f"/topics/{name}"
    if follows:
        render = newest(log, name, wanted, again=not read_only)
        where = address(f"{path}/follow", wanted.parameters())
        stop = h.a(".button", href=address(path, wanted.parameters()) + "#messages")["Stop"]
        return h.div("#messages")[
            h.p(".links", role="status")[
                h.span(".badge.good")["live"], "New records appear at the top. ", stop
            ],
            live(where, render(), id="newest"),
        ]
    found = browse(log, state, wanted)
    return h.div("#messages")[
        _asof(log, state, wanted),
        [h.p(".hint")[note + "."] for note in found.notes],
        records_table(
            state.topic,
            found.records,
            again=not read_only,
            empty="No record matches." if wanted.filtered else "No record.",
        ),
        _further(path, wanted, found),
    ]


def _further(path: str, wanted: Wanted, found: Found) -> Node:
    order = "Oldest first" if wanted.ascending else "Newest first"
    read = f", {many(found.scanned, 'row')} searched" if wanted.filtered else ""
    first = wanted.cursor and h.a(href=address(path, wanted.parameters()) + "#messages")["« First"]
    on = (
        found.cursor
        and h.a(
            "#further",
            href=address(path, {**wanted.parameters(), "cursor": found.cursor}) + "#messages",
        )["Newer ›" if wanted.ascending else "Older ›"]
    )
    return h.nav(".links", aria_label="Pages of records")[
        h.span(".hint")[f"{order}{read}"], first, on
    ]


def _asof(log: Log, state: TopicState, wanted: Wanted) -> Node:
    """The contents of the topic after a commit, if one is asked for."""
    if wanted.asof is None:
        return None
    log.require(Capability.NUMBERED_APPENDS)
    return h.p(".note", role="status")[
        "As of commit ",
        h.strong(data_fact="asof")[f"{wanted.asof:,}"],
        ". ",
        h.a(href=address(f"/topics/{state.topic.name}", {**wanted.parameters(), "asof": ""}))[
            "Back to now"
        ],
    ]


def filters(state: TopicState, wanted: Wanted, *, follows: bool) -> Element:
    """The form whose fields are the address. A link to it is a saved filter."""
    name = state.topic.name
    keyed = state.topic.schema is None or state.topic.key is not None
    choices = state.topic.partitions > 1
    return h.form(".row", action=f"/topics/{name}#messages", method="get", role="search")[
        h.label[
            "From",
            h.input(
                type="text",
                name="at",
                value=wanted.at,
                size="22",
                placeholder="offset, time or earliest",
                title="An offset (42), a time (2026-01-31T12:00:00Z), earliest, or commit:7",
            ),
        ],
        choices
        and h.label[
            "Partition",
            h.input(
                type="number",
                name="partition",
                min="0",
                max=str(state.topic.partitions - 1),
                value="" if wanted.partition is None else str(wanted.partition),
                placeholder="all",
            ),
        ],
        keyed and h.label["Key", h.input(type="text", name="key", value=wanted.key, size="14")],
        h.label["Text", h.input(type="search", name="text", value=wanted.text, size="18")],
        wanted.asof is not None and h.input(type="hidden", name="asof", value=str(wanted.asof)),
        h.button(".primary", type="submit")["Show"],
        not follows
        and wanted.asof is None
        and h.button(type="submit", name="follow", value="1")["Follow live"],
    ]


def slider(log: Log, state: TopicState, wanted: Wanted) -> Node:
    """The slider of commits, for logs that have them."""
    if Capability.NUMBERED_APPENDS not in log.capabilities or not (head := log.head()):
        return None
    name = state.topic.name
    hidden = {**wanted.parameters(), "asof": ""}
    return h.form(
        "#history",
        {"hx-get": f"/topics/{name}", "hx-trigger": "input delay:60ms, submit"},
        action=f"/topics/{name}",
        method="get",
        hx_target="#held",
        hx_select="#held",
        hx_swap="outerHTML",
        hx_sync="this:replace",
        data_address=True,
    )[
        [
            h.input(type="hidden", name=each, value=str(value))
            for each, value in hidden.items()
            if value not in (None, "")
        ],
        h.label(".field")[
            h.span[f"As of commit (0 to {head:,})"],
            h.input(
                type="range",
                name="asof",
                min="0",
                max=str(head),
                value=str(head if wanted.asof is None else min(wanted.asof, head)),
            ),
        ],
        h.noscript[h.button(type="submit")["Show"]],
    ]
