"""Captured databases: how far each capture is, snapshots of tables, gaps and changes of schemas.

A capture writes its state with each commit, so the log knows it without the database. What the
database alone knows, such as its lag and the WAL that a slot holds back, it notes in a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import htpy as h
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.cdc.attachment import attachments
from headrace.cdc.notes import CaptureNote, capture_note
from headrace.cdc.state import CaptureState, Notice, Snapshot, TableState, read_state, state_topic
from headrace.clock import SECOND, SystemClock
from headrace.errors import UnknownTopic
from headrace.log import Log
from headrace.studio.live.drawn import clock_time
from headrace.studio.live.following import following
from headrace.studio.live.handles import Opened
from headrace.studio.pages import Fact, badge, facts, failure, live, page, section, table
from headrace.wording import lag_text, span

router = APIRouter()

_NOTICES = 20
_STATES = {"running": "good", "waiting": "warn", "stopped": "muted", "silent": "bad"}
_SAID = {
    "waiting": " It waits for its database.",
    "stopped": " Stopped {heard} ago. The numbers are from then.",
    "silent": " Its process has said nothing for {heard}: it was killed, or cannot write.",
}


@dataclass(frozen=True)
class Captured:
    """A capture by the prefix of its topics, its state, and its note if it has written one."""

    prefix: str
    state: CaptureState
    note: CaptureNote | None = None

    @property
    def delay(self) -> float | None:
        """Seconds from the last change in the database until it was in the log."""
        reached = self.state.reached
        return None if reached.at is None else max(0, reached.time - reached.at) / SECOND


@router.get("/sources", include_in_schema=False)
def sources(request: Request, opened: Opened) -> HTMLResponse:
    """All captured databases."""
    return page(
        request,
        "Sources",
        h.p(".lead")["Databases whose changes are captured into topics, one for each table."],
        live("/sources/live", _content(opened.log), id="sources"),
        wide=True,
    )


@router.get("/sources/live", include_in_schema=False, response_class=EventSourceResponse)
async def sources_live(request: Request, opened: Opened) -> AsyncIterator[ServerSentEvent]:
    """The captured databases, whenever something changes."""
    async for event in following(request, partial(_content, opened.log), every=2.0):
        yield event


@router.get("/api/sources", tags=["sources"])
def sources_json(opened: Opened) -> list[dict[str, Any]]:
    """The captured databases: positions, tables with their snapshots, notices, and lag."""
    return [
        {
            "prefix": each.prefix,
            "delay": each.delay,
            **asdict(each.state),
            "note": None if each.note is None else asdict(each.note),
        }
        for each in captures(opened.log)
    ]


def captures(log: Log) -> list[Captured]:
    """The captures of a log, and the databases that are attached to it and not captured yet."""
    start = state_topic("")
    names = [topic.name for topic in log.topics() if topic.name.startswith(start)]
    prefixes = {name.removeprefix(start) for name in names}
    prefixes |= {attachment.prefix for attachment in attachments(log)}
    return [
        Captured(prefix, _state(log, prefix), capture_note(log, prefix))
        for prefix in sorted(prefixes)
    ]


def _state(log: Log, prefix: str) -> CaptureState:
    try:
        return read_state(log, prefix)
    except UnknownTopic:  # it was attached and has not run yet
        return CaptureState()


def _content(log: Log) -> Node:
    found = captures(log)
    if not found:
        return h.p(".empty")[
            "No database is captured into this log yet: ", h.code["headrace cdc --help"]
        ]
    return [_one(log, each) for each in found]


def _one(log: Log, captured: Captured) -> Element:
    state, reached = captured.state, captured.state.reached
    if not reached.time:
        return section(captured.prefix, _running(captured.note), id=f"source-{captured.prefix}")
    gaps = sum(notice.kind == "gap" for notice in state.notices)
    ago = max(0, SystemClock().now() - reached.time) if reached.time else None
    return section(
        captured.prefix,
        _running(captured.note),
        facts(
            [
                *_held(captured.note),
                Fact("position", reached.position or "none yet"),
                Fact("transactions", f"{reached.transactions:,}"),
                Fact("changes", f"{reached.changes:,}"),
                Fact("last change", clock_time(reached.at), hint="By the database's clock"),
                Fact(
                    "was in the log after",
                    "–" if captured.delay is None else span(captured.delay),
                    hint="From the commit in the database to the commit in the log",
                ),
                Fact("last commit", "–" if ago is None else f"{_rounded(ago)} ago"),
                Fact("gaps", f"{gaps:,}", "bad" if gaps else "good"),
            ]
        ),
        bool(reached.tx)
        and h.p(".note")[
            f"Transaction {reached.tx} is being written in parts: {reached.done:,} changes so far."
        ],
        _tables(log, list(state.tables.values())),
        _notices(state.notices),
        id=f"source-{captured.prefix}",
    )


def _running(note: CaptureNote | None) -> Node:
    """The state of a capture: running or not, and what it waits for."""
    if note is None:
        return h.p(".note")[badge("not running", "muted"), " ", h.code["headrace cdc run"]]
    now = SystemClock().now()
    state, heard = note.state_at(now), _rounded(max(0, now - note.at))
    return [
        h.p(".note")[
            badge(state, _STATES[state]),
            " ",
            h.code[note.address],
            _SAID.get(state, "").format(heard=heard),
        ],
        note.trouble and failure(note.trouble),
    ]


def _held(note: CaptureNote | None) -> list[Fact]:
    """The database's side of a capture, such as the changes that are not in the log yet."""
    if note is None:
        return []
    lag = Fact(
        "lag",
        lag_text(note.lag, note.unit),
        "warn" if note.lag else "good",
        hint="In the database, and not in the log yet",
    )
    return [lag, *(Fact(name, value, _kind(name, value)) for name, value in note.facts.items())]


def _kind(name: str, value: str) -> str:
    """The colour of a fact about a database. PostgreSQL says how safe a slot's log is."""
    if name != "slot status":
        return ""
    return {"reserved": "good", "extended": "warn"}.get(value, "bad")


def _rounded(micros: int) -> str:
    """A time that has passed, coarse enough that the page changes seldom."""
    seconds = micros // SECOND
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "under 10 s" if seconds < 10 else f"{seconds // 10 * 10} s"


def _tables(log: Log, tables: Sequence[TableState]) -> Node:
    there = {topic.name for topic in log.topics()}
    return table(
        ("table", "topic", "records", "key", "snapshot", "rows read", "written", "deleted"),
        [
            (
                h.strong[each.name],
                h.a(href=f"/topics/{each.topic}")[each.topic]
                if each.topic in there
                else each.topic,
                f"{log.topic(each.topic).records:,}" if each.topic in there else "–",
                ", ".join(each.key) or "none",
                _snapshot(each.snapshot),
                *(
                    "–" if each.snapshot is None else f"{getattr(each.snapshot, name):,}"
                    for name in ("read", "written", "deleted")
                ),
            )
            for each in sorted(tables, key=lambda each: each.name)
        ],
        numeric=("records", "rows read", "written", "deleted"),
        caption="Tables, and the last snapshot of each.",
        empty="No table was seen yet.",
    )


def _snapshot(snapshot: Snapshot | None) -> Node:
    if snapshot is None:
        return badge("none", "muted")
    if snapshot.complete:
        return badge(f"{snapshot.kind}, complete", "good")
    if snapshot.sweeping:
        return badge(f"{snapshot.kind}, looks for deleted rows", "warn")
    after = f" after key {snapshot.after}" if snapshot.after else ""
    return badge(f"{snapshot.kind}, reading{after}", "warn")


def _notices(notices: Sequence[Notice]) -> Node:
    if not notices:
        return None
    newest = sorted(notices, key=lambda each: each.number, reverse=True)[:_NOTICES]
    kinds = {"gap": "bad", "schema": ""}
    return table(
        ("time", "what", "table", "position", "in words"),
        [
            (
                clock_time(each.time or None),
                badge("gap" if each.kind == "gap" else "schema change", kinds[each.kind]),
                each.table or "all",
                each.position or "–",
                each.text,
            )
            for each in newest
        ],
        caption=f"Gaps and changes of schemas: the newest {len(newest)} of {len(notices):,}.",
    )
