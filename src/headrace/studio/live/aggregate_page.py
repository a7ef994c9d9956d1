"""The page of an aggregate: its state, its events with the state before and after, its commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import htpy as h
from htpy import Element, Node

import headrace.eventsourcing as es
from headrace.clock import to_micros
from headrace.studio.live.aggregate_past import FOLDED, Then
from headrace.studio.live.cells import cell
from headrace.studio.live.links import address
from headrace.studio.pages import Fact, badge, facts, section, table
from headrace.wording import count, when

_OUTCOMES = {"accepted": "good", "refused": "bad"}


def path_to(domain: str, kind: str, id: str = "", **more: object) -> str:
    """The path of an aggregate's page. An id may be any text, so it is a parameter."""
    return address(f"/domains/{domain}/{kind}", {"id": id, **more})


def drawn(domain: es.Domain, then: Then) -> Node:
    """An aggregate at a moment."""
    last = then.events[0] if then.events else None
    refused = sum(command.reason is not None for command in then.commands)
    return [
        _when(domain, then),
        facts(
            (
                Fact("version", count(then.version)),
                Fact("events now", count(then.newest)),
                Fact("commit", count(last.commit) if last else "–", hint="Of its last event"),
                Fact(
                    "refused",
                    count(refused),
                    "bad" if refused else "good",
                    hint=f"Of the last {len(then.commands)} commands",
                ),
            ),
        ),
        section("State", _state(then), _sealed(domain, then)),
        section("History", _history(domain, then), _older(domain, then)),
        section("Commands", _commands(domain, then)),
    ]


def slider(domain: es.Domain, then: Then, *, now: bool) -> Element:
    """The slider of versions, and a box for a commit or a time."""
    path = path_to(domain.name, then.aggregate.name)
    return h.div("#history")[
        h.form(
            {"hx-get": path, "hx-trigger": "input delay:60ms, submit"},
            action=path,
            method="get",
            hx_target="#held",
            hx_select="#held",
            hx_swap="outerHTML",
            hx_sync="this:replace",
            data_address=True,
        )[
            h.input(type="hidden", name="id", value=then.id),
            h.label(".field")[
                h.span[f"After version (0 to {then.newest:,})"],
                h.input(
                    type="range",
                    name="version",
                    min="0",
                    max=str(then.newest),
                    value=str(then.newest if now else then.version),
                ),
            ],
            h.noscript[h.button(type="submit")["Show"]],
        ],
        h.form(".row", action=path, method="get")[
            h.input(type="hidden", name="id", value=then.id),
            h.label[
                "At a commit or a time",
                h.input(type="text", name="at", size="22", required=True, placeholder="42"),
            ],
            h.button(type="submit")["Show"],
        ],
    ]


def _when(domain: es.Domain, then: Then) -> Element:
    if then.version == then.newest:
        return h.p(".note")[h.strong["Now"], f", after version {then.version:,}."]
    return h.p(".note", role="status")[
        h.strong[f"After version {then.version:,} of {then.newest:,}"],
        f", as of commit {then.commit:,}. ",
        h.a(href=path_to(domain.name, then.aggregate.name, then.id))["Back to now"],
    ]


def _state(then: Then) -> Node:
    """Each field of the state, before and after the event of this version."""
    if then.state is None:
        return h.p(".empty")[
            f"It has {then.newest:,} events and no snapshots, and a page folds {FOLDED:,} events. "
            "Declare ",
            h.code["es.aggregate(..., snapshot_every=100)"],
            " to see states.",
        ]
    codec = then.aggregate.codec
    after, first = codec.data(then.state), next(iter(then.changes), None)
    before = codec.data(first.before) if isinstance(first, es.Change) else after
    return table(
        ("field", "before", "after"),
        [
            (
                name,
                h.span(".hint")[cell(_plain(before[name]))],
                h.strong(class_="k-good" if before[name] != value else None)[cell(_plain(value))],
            )
            for name, value in after.items()
        ],
        caption=f"Before and after event {then.version:,}" if first else "It has no events yet",
        id="state",
    )


def _sealed(domain: es.Domain, then: Then) -> Node:
    messages: list[Any] = [*then.aggregate.events, *then.aggregate.commands]
    if not any(one.personal.fields for one in messages) and not domain.personal_metadata.fields:
        return None
    return h.p(".hint")[
        f"Personal fields read as {es.SEALED}, and as null where they may be empty: a studio "
        "has no keys."
    ]


def _history(domain: es.Domain, then: Then) -> Node:
    return table(
        ("version", "when", "event", "state", "who and why", "command", "commit"),
        [_change(domain, then, each) for each in then.changes],
        numeric=("version", "commit"),
        empty="No event yet.",
        id="changes",
    )


def _change(
    domain: es.Domain, then: Then, change: es.Change[Any] | es.StoredEvent
) -> tuple[Node, ...]:
    event = change.event if isinstance(change, es.Change) else change
    there = path_to(domain.name, then.aggregate.name, then.id, version=event.version)
    return (
        h.a(href=there)[count(event.version)],
        h.span(".nowrap")[when(to_micros(event.at))],
        [badge(event.type), " ", _fields(domain.event_type(event.type).codec.data(event.event))],
        _differences(then.aggregate, change),
        _fields(event.metadata),
        h.code[_short(event.command)],
        h.a(href=address(f"/topics/{domain.events.name}", {"at": f"commit:{event.commit - 1}"}))[
            count(event.commit)
        ],
    )


def _differences(aggregate: es.Aggregate[Any], change: es.Change[Any] | es.StoredEvent) -> Node:
    """The fields of the state that an event has changed."""
    if not isinstance(change, es.Change):
        return "–"
    before, after = (aggregate.codec.data(each) for each in (change.before, change.after))
    moved = [name for name in after if before[name] != after[name]]
    if not moved:
        return h.span(".hint")["unchanged"]
    return [
        h.div(".pair")[
            h.span(".hint")[f"{name} "],
            cell(_plain(before[name])),
            " → ",
            cell(_plain(after[name])),
        ]
        for name in moved
    ]


def _older(domain: es.Domain, then: Then) -> Node:
    if then.older is None:
        return None
    path = path_to(domain.name, then.aggregate.name, then.id, version=then.older)
    return h.nav(".links", aria_label="Pages")[h.a(href=path)["Older events ›"]]


def _commands(domain: es.Domain, then: Then) -> Node:
    if not domain.record_commands:
        return h.p(".empty")["This domain does not record its commands."]
    return commands_table(domain, then.commands, links=False)


def commands_table(
    domain: es.Domain,
    commands: tuple[es.StoredCommand, ...] | list[es.StoredCommand],
    *,
    links: bool,
) -> Node:
    """Commands with their outcome; with `links`, with the aggregate of each."""
    rows = []
    for each in commands:
        kind, _, id = each.aggregate.partition("/")
        data = domain.command_type(kind, each.type).codec.data(each.command)
        to = h.a(href=path_to(domain.name, kind, id))[each.aggregate] if id else each.aggregate
        rows.append(
            (
                h.span(".nowrap")[when(to_micros(each.at))],
                *([to] if links else []),
                [badge(each.type), " ", _fields(data)],
                badge(each.outcome, _OUTCOMES.get(each.outcome, "")),
                h.strong(".k-bad")[each.reason] if each.reason else "",
                _fields(each.metadata),
                h.code[_short(each.id)],
                count(each.commit),
            )
        )
    to_whom = ("to",) if links else ()
    columns = ("when", *to_whom, "command", "outcome", "reason", "who and why", "id", "commit")
    return table(
        columns,
        rows,
        numeric=("commit",),
        empty="No command was recorded.",
        id="commands",
    )


def _fields(found: Mapping[str, Any]) -> Node:
    if not found:
        return None
    return [
        h.span(".pair")[h.span(".hint")[f"{name} "], cell(_plain(value))]
        for name, value in found.items()
    ]


def _plain(value: Any) -> Any:
    """A value of plain data, as text if it has parts."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else value


def _short(id: str) -> str:
    return id if len(id) <= 12 else f"{id[:10]}…"
