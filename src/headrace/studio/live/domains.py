"""Domains of events: their aggregates, each with its history and its state at any moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import htpy as h
import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Node
from starlette.responses import HTMLResponse

import headrace.eventsourcing as es
from headrace.clock import to_micros
from headrace.errors import UnknownPage
from headrace.eventsourcing.topics import EVENTS
from headrace.log import Log
from headrace.log.sample import newest
from headrace.schema.ddl import parse_schema
from headrace.studio.live.aggregate_page import commands_table, drawn, path_to, slider
from headrace.studio.live.aggregate_past import Past, Then
from headrace.studio.live.following import following
from headrace.studio.live.handles import Handles, Opened
from headrace.studio.live.links import pager
from headrace.studio.pages import badge, live, page, section, table
from headrace.wording import count, many, when

router = APIRouter()

_PAGE = 20
_EVENTS = 10_000
"""The newest events of a domain, in which its page looks for aggregates."""
_COMMANDS = 500
"""The newest commands, among which its page looks for refused ones."""
_REFUSED = 20
_SUFFIX = ".events"

Id = Annotated[str, Query(max_length=1_000)]
Version = Annotated[int | None, Query(ge=0, le=1 << 62)]
At = Annotated[str, Query(max_length=100, description="A commit or a time")]


@dataclass(frozen=True)
class Changed:
    """An aggregate among the newest events of its domain, with the last of them."""

    aggregate: str
    version: int
    type: str
    at: int
    commit: int


@router.get("/domains", include_in_schema=False)
def domains(request: Request, opened: Opened) -> HTMLResponse:
    """The list of domains."""
    return page(
        request,
        "Domains",
        h.p(".lead")["Aggregates whose events are the truth: each state is a fold of its events."],
        live("/domains/live", _listed(opened), id="domains"),
        wide=True,
    )


@router.get("/domains/live", include_in_schema=False, response_class=EventSourceResponse)
async def domains_live(request: Request, opened: Opened) -> AsyncIterator[ServerSentEvent]:
    """The list of domains, whenever it changes."""
    async for event in following(request, partial(_listed, opened), every=2.0):
        yield event


@router.get("/api/domains", tags=["domains"])
def domains_json(opened: Opened) -> list[dict[str, Any]]:
    """The domains of the log and of the modules: kinds of aggregates, and numbers of records."""
    return [
        {
            "name": name,
            "declared": domain is not None,
            "aggregates": [] if domain is None else [one.name for one in domain.aggregates],
            "events": _records(opened.log, f"{name}{_SUFFIX}"),
            "commands": _records(opened.log, f"{name}.commands"),
        }
        for name, domain in _all(opened).items()
    ]


@router.get("/domains/{name}", include_in_schema=False)
def domain(
    request: Request, opened: Opened, name: str, at: Annotated[int, Query(ge=1, le=1_000)] = 1
) -> HTMLResponse:
    """The page of a domain."""
    found = _named(opened, name)
    return page(
        request,
        name,
        _find(found),
        live(f"/domains/{name}/live?at={at}", _now(opened, found, at), id="domain"),
        section("Declared", _declared(found)),
        wide=True,
    )


@router.get("/domains/{name}/live", include_in_schema=False, response_class=EventSourceResponse)
async def domain_live(
    request: Request, opened: Opened, name: str, at: Annotated[int, Query(ge=1, le=1_000)] = 1
) -> AsyncIterator[ServerSentEvent]:
    """The page of a domain, whenever it changes."""
    async for event in following(
        request, lambda: _now(opened, _named(opened, name), at), every=2.0
    ):
        yield event


@router.get("/api/domains/{name}", tags=["domains"])
def domain_json(opened: Opened, name: str) -> dict[str, Any]:
    """A domain: the aggregates with the newest events, and the commands refused last."""
    found = _named(opened, name)
    return {
        "name": name,
        "aggregates": [asdict(each) for each in _changed(opened, found)[:_PAGE]],
        "refused": [_plain_command(found, each) for each in _refused(opened, found)],
    }


@router.get("/domains/{name}/{kind}", include_in_schema=False)
def aggregate(
    request: Request,
    opened: Opened,
    name: str,
    kind: str,
    id: Id,
    version: Version = None,
    at: At = "",
) -> HTMLResponse:
    """The page of an aggregate: now, or after a version, or at a commit or a time."""
    past = _past(opened, name, kind, id)
    then = past.then(version=version, at=at.strip())
    now = version is None and not at.strip()
    found = past.store.domain
    return page(
        request,
        f"{kind}/{id}",
        h.p(".lead")["An aggregate of the domain ", h.a(href=f"/domains/{name}")[name], "."],
        slider(found, then, now=now),
        h.div("#held")[
            live(path_to(name, f"{kind}/live", id), drawn(found, then), id="aggregate")
            if now
            else h.div("#aggregate", data_version=str(then.version))[drawn(found, then)]
        ],
        wide=True,
    )


@router.get(
    "/domains/{name}/{kind}/live", include_in_schema=False, response_class=EventSourceResponse
)
async def aggregate_live(
    request: Request, opened: Opened, name: str, kind: str, id: Id
) -> AsyncIterator[ServerSentEvent]:
    """The page of an aggregate, whenever it changes."""

    def now() -> Node:
        past = _past(opened, name, kind, id)
        return drawn(past.store.domain, past.then())

    async for event in following(request, now, every=1.0):
        yield event


@router.get("/api/domains/{name}/{kind}", tags=["domains"])
def aggregate_json(
    opened: Opened,
    name: str,
    kind: str,
    id: Id,
    version: Version = None,
    at: At = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 20,
) -> dict[str, Any]:
    """An aggregate: its state, its last events and commands; after a version, or at a moment."""
    past = _past(opened, name, kind, id)
    return _plain(past.store.domain, past.then(version=version, at=at.strip(), rows=limit))


def _all(opened: Handles) -> dict[str, es.Domain | None]:
    """The domains by name: those declared, and those that only the log has."""
    columns = parse_schema(EVENTS)
    found: dict[str, es.Domain | None] = {
        topic.name.removesuffix(_SUFFIX): None
        for topic in opened.log.topics()
        if topic.name.endswith(_SUFFIX) and topic.schema == columns
    }
    return dict(sorted((found | dict(opened.settings.domains)).items()))


def _named(opened: Handles, name: str) -> es.Domain:
    found = opened.settings.domains.get(name)
    if found is None:
        raise UnknownPage(
            f"No module of this studio declares a domain {name[:100]!r}",
            hint="Name one that does: headrace studio MODULE:DOMAIN",
        )
    return found


def _past(opened: Handles, name: str, kind: str, id: str) -> Past:
    domain = _named(opened, name)
    named = {one.name: one for one in domain.aggregates}
    if kind not in named:
        raise UnknownPage(
            f"The domain {name!r} has no aggregate {kind[:100]!r}",
            hint=f"It has: {', '.join(named)}",
        )
    store = opened.store(domain)
    if store is None or not id:
        raise UnknownPage(f"There is no {kind} {id!r}", hint="The domain has no events yet")
    return Past(store, named[kind], id)


def _records(log: Log, topic: str) -> int | None:
    return log.topic(topic).records if log.topic_ids([topic]) else None


def _listed(opened: Handles) -> Node:
    log = opened.log

    def topic(name: str) -> Node:
        records = _records(log, name)
        return "–" if records is None else h.a(href=f"/topics/{name}")[count(records)]

    rows = []
    for name, found in _all(opened).items():
        kinds = ", ".join(one.name for one in found.aggregates) if found else ""
        rows.append(
            (
                name if found is None else h.a(href=f"/domains/{name}")[name],
                kinds or badge("not declared here", "muted"),
                topic(f"{name}{_SUFFIX}"),
                topic(f"{name}.commands"),
                topic(f"{name}.snapshots"),
            )
        )
    return [
        table(
            ("domain", "aggregates", "events", "commands", "snapshots"),
            rows,
            numeric=("events", "commands", "snapshots"),
            empty=[
                "There is no domain yet. A module declares one: ",
                h.code["headrace studio MODULE:DOMAIN"],
            ],
        ),
        None in _all(opened).values()
        and h.p(".hint")[
            "States are folded by the functions of a domain, so name its module: ",
            h.code["headrace studio MODULE:DOMAIN"],
        ],
    ]


def _now(opened: Handles, domain: es.Domain, at: int) -> Node:
    changed = _changed(opened, domain)
    shown = changed[(at - 1) * _PAGE : at * _PAGE]
    refused = _refused(opened, domain)
    path = f"/domains/{domain.name}"
    return [
        section(
            "Aggregates",
            table(
                ("aggregate", "version", "last event", "when", "commit"),
                [
                    (
                        h.a(href=path_to(domain.name, *_split(each.aggregate)))[each.aggregate],
                        count(each.version),
                        badge(each.type),
                        h.span(".nowrap")[when(each.at)],
                        count(each.commit),
                    )
                    for each in shown
                ],
                numeric=("version", "commit"),
                caption=f"{many(len(changed), 'aggregate')} among the newest {_EVENTS:,} events",
                empty="The domain has no events yet.",
            ),
            pager(path, {}, "at", at, -(-len(changed) // _PAGE)),
        ),
        section(
            "Refused commands",
            commands_table(domain, refused, links=True)
            if refused
            else h.p(".empty")[f"None among the newest {_COMMANDS} commands."],
        )
        if domain.record_commands
        else section("Refused commands", h.p(".empty")["This domain does not record commands."]),
    ]


def _find(domain: es.Domain) -> Node:
    return [
        h.form(".row", action=path_to(domain.name, one.name), method="get")[
            h.label[f"{one.name} by id", h.input(type="text", name="id", size="24", required=True)],
            h.button(type="submit")["Show"],
        ]
        for one in domain.aggregates
    ]


def _declared(domain: es.Domain) -> Node:
    """The types of each aggregate, and what of them is personal."""

    def types(found: tuple[es.EventType, ...] | tuple[es.CommandType, ...]) -> str:
        return ", ".join(
            f"{one.name} v{one.version}" if one.version > 1 else one.name for one in found
        )

    def personal(one: es.Aggregate[Any]) -> str:
        messages: tuple[Any, ...] = (*one.events, *one.commands)
        return ", ".join(dict.fromkeys(f for each in messages for f in each.personal.fields)) or "–"

    return [
        table(
            ("aggregate", "events", "commands", "snapshot every", "personal fields"),
            [
                (
                    one.name,
                    types(one.events),
                    types(one.commands) or "–",
                    "–" if one.snapshot_every is None else many(one.snapshot_every, "event"),
                    personal(one),
                )
                for one in domain.aggregates
            ],
        ),
        bool(domain.decisions)
        and h.p(".hint")[
            "Decisions across aggregates: ", ", ".join(one.name for one in domain.decisions), "."
        ],
    ]


def _changed(opened: Handles, domain: es.Domain) -> list[Changed]:
    """The aggregates of the newest events, newest first."""
    if opened.store(domain) is None:
        return []
    found: dict[str, Changed] = {}
    batches = newest(opened.log, domain.events.name, _EVENTS).batches
    for batch in sorted(batches, key=lambda each: each.commit or 0):
        columns = batch.data.select(["aggregate", "version", "type", "at"])
        for key, version, type, at in zip(*map(_values, columns), strict=True):
            found.pop(key, None)
            found[key] = Changed(key, version, type, to_micros(at), batch.commit or 0)
    return list(found.values())[::-1]


def _values(column: pa.Array) -> list[Any]:
    return list(column.to_pylist())


def _refused(opened: Handles, domain: es.Domain) -> list[es.StoredCommand]:
    """The commands that were refused last, newest first."""
    store = opened.store(domain)
    if store is None or not domain.record_commands:
        return []
    found = store.latest_commands(_COMMANDS)
    return [each for each in found if each.reason is not None][:_REFUSED]


def _split(key: str) -> tuple[str, str]:
    kind, _, id = key.partition("/")
    return kind, id


def _plain(domain: es.Domain, then: Then) -> dict[str, Any]:
    data = then.aggregate.codec.data

    def change(each: es.Change[Any] | es.StoredEvent) -> Mapping[str, Any]:
        event = each.event if isinstance(each, es.Change) else each
        states = (
            {"before": data(each.before), "after": data(each.after)}
            if isinstance(each, es.Change)
            else {}
        )
        return {
            "version": event.version,
            "type": event.type,
            "at": event.at.isoformat(),
            "commit": event.commit,
            "command": event.command,
            "metadata": event.metadata,
            "event": domain.event_type(event.type).codec.data(event.event),
            **states,
        }

    return {
        "aggregate": f"{then.aggregate.name}/{then.id}",
        "version": then.version,
        "newest": then.newest,
        "commit": then.commit,
        "state": None if then.state is None else data(then.state),
        "history": [change(each) for each in then.changes],
        "commands": [_plain_command(domain, each) for each in then.commands],
    }


def _plain_command(domain: es.Domain, command: es.StoredCommand) -> dict[str, Any]:
    kind, _ = _split(command.aggregate)
    return {
        "id": command.id,
        "aggregate": command.aggregate,
        "type": command.type,
        "at": command.at.isoformat(),
        "outcome": command.outcome,
        "reason": command.reason,
        "commit": command.commit,
        "metadata": command.metadata,
        "command": domain.command_type(kind, command.type).codec.data(command.command),
    }
