"""Queues as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from headrace.cli.failures import say
from headrace.cli.output import facts, moment, plain, show, show_json, table
from headrace.clock import SECOND, SystemClock
from headrace.log import Commit
from headrace.queue import LogQueue, PastState, QueueState, WorkQueue
from headrace.wording import count, span

_SHOWN = 20


def show_all(states: Sequence[QueueState], *, json: bool) -> None:
    """All queues, a line each."""
    if json:
        for state in states:
            show_json(_plain(state))
        return
    if not states:
        say("There are no queues: 'headrace queue create NAME' creates one")
        return
    lines = table("queue", ">waiting", ">acquired", ">delayed", ">dead letters", ">oldest")
    for state in states:
        lines.add_row(
            plain(state.name, "bold"),
            count(state.waiting),
            count(state.acquired),
            count(state.delayed),
            plain(count(state.dead), "yellow" if state.dead else ""),
            _age(state.oldest),
        )
    show(lines)


def show_one(queue: WorkQueue, *, json: bool) -> None:
    """A queue with its settings, its leases and the reasons of its dead letters."""
    state = queue.state()
    leases, reasons = [], Counter[str]()
    if isinstance(queue, LogQueue):
        queues = queue.log.queues()
        leases = queues.leases(queue.row, _SHOWN)
        reasons.update(dead.reason for dead in queues.dead(queue.row))
    if json:
        show_json(
            _plain(state)
            | {
                "topic": queue.row.topic,
                "settings": queue.settings.to_text(),
                "leases": [dataclasses.asdict(lease) for lease in leases],
                "reasons": dict(reasons.most_common()),
            }
        )
        return
    heading = facts()
    heading.add_row("queue", plain(queue.name, "bold"))
    heading.add_row("topic", plain(queue.row.topic))
    heading.add_row("unfinished", f"{count(state.unfinished)}, the oldest {_age(state.oldest)}")
    for name in ("ready", "acquired", "delayed", "blocked", "unread"):
        heading.add_row(f"  {name}", count(getattr(state, name)))
    heading.add_row("dead letters", count(state.dead))
    changed = [f"{k}={v}" for k, v in queue.settings.to_text().items() if v is not None]
    heading.add_row("settings", plain(" ".join(changed)))
    parts: list[Table | str] = [heading]
    if leases:
        lines = table("worker", ">partition", ">offset", ">delivery", ">lease ends in")
        for lease in leases:
            lines.add_row(
                plain(lease.worker),
                str(lease.partition),
                count(lease.offset),
                str(lease.deliveries),
                span(max(0, lease.left) / SECOND),
            )
        parts += ["", lines]
    if reasons:
        lines = table(">dead letters", "reason")
        for reason, number in reasons.most_common(_SHOWN):
            lines.add_row(count(number), plain(reason))
        parts += ["", lines]
    show(*parts)


def show_past(past: PastState, *, json: bool) -> None:
    """A queue at a past moment."""
    if json:
        show_json(
            {"name": past.name, "at": _at(past), "waiting": past.waiting, "dead": past.dead,
             "outcomes": dict(past.outcomes)}
        )  # fmt: skip
        return
    heading = facts()
    heading.add_row("queue", plain(past.name, "bold"))
    heading.add_row("at", plain(_at(past)))
    heading.add_row("unfinished", count(past.waiting))
    heading.add_row("dead letters", count(past.dead))
    for outcome, number in past.outcomes.items():
        heading.add_row(f"  {outcome}", count(number))
    show(heading)


def _plain(state: QueueState) -> dict[str, Any]:
    return dataclasses.asdict(state) | {
        "waiting": state.waiting,
        "unfinished": state.unfinished,
        "oldest": moment(state.oldest),
    }


def _age(micros: int | None) -> str:
    if micros is None:
        return "-"
    return f"{span(max(0, SystemClock().now() - micros) / SECOND)} ago"


def _at(past: PastState) -> str:
    return f"commit:{past.at.number}" if isinstance(past.at, Commit) else str(past.at)
