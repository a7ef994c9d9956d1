"""The page of a work queue as it is now: counts, leases, settlements and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import htpy as h
from htpy import Element, Node

from headrace.clock import SECOND, SystemClock, to_micros
from headrace.errors import UnknownTopic
from headrace.log import Log
from headrace.log.queueing import DeadMessage, Lease, QueueRow, QueueState
from headrace.studio.live.browsing import Wanted, browse
from headrace.studio.live.links import address
from headrace.studio.pages import Fact, badge, facts, section, table
from headrace.wording import count, many, span, when

_SHOWN = 20
_SETTLED = 10
_REASONS = 10_000
"""Dead letters that are read for their reasons."""
_KINDS = {
    "accepted": "good", "released": "warn", "rejected": "bad", "dropped": "bad", "purged": "bad",
}  # fmt: skip


def look(log: Log, name: str) -> tuple[QueueRow, QueueState, list[Lease], list[DeadMessage]]:
    """A queue, its counts, its leases, and its dead letters if they are not too many."""
    queues = log.queues()
    row = queues.find(name)
    state = queues.state(row)
    dead = queues.dead(row) if state.dead <= _REASONS else []
    return row, state, queues.leases(row, 5 * _SHOWN), dead


def age_of(micros: int | None) -> str:
    """The age of the oldest message."""
    return "–" if micros is None else span(max(0, SystemClock().now() - micros) // SECOND)


def settings_of(row: QueueRow) -> Element:
    """The settings of a queue."""
    given = {name: value for name, value in row.settings.to_text().items() if value is not None}
    return h.dl(".explained")[([h.dt[name], h.dd[value]] for name, value in given.items())]


def now(log: Log, name: str) -> Node:
    """The queue now."""
    row, state, leases, dead = look(log, name)
    again = [lease for lease in leases if lease.deliveries > 1]
    return [
        facts(
            (
                Fact("waiting", count(state.waiting), "warn" if state.waiting else "good"),
                Fact("in flight", count(state.acquired), hint="Handed out, under a lease"),
                Fact("dead letters", count(state.dead), "bad" if state.dead else "good"),
                Fact("oldest", age_of(state.oldest), hint="Age of the oldest unfinished message"),
                Fact("ready", count(state.ready), hint="Can be handed out now"),
                Fact("delayed", count(state.delayed), hint="Wait for a time"),
                Fact("blocked", count(state.blocked), hint="Wait for others of their key"),
                Fact("not yet looked at", count(state.unread), hint="In the topic, some of each"),
            )
        ),
        h.p(".hint")[
            "Messages are in ", h.a(href=f"/topics/{row.topic}")[row.topic],
            ", settlements in ", h.a(href=f"/topics/{row.journal}")[row.journal],
            ", dead letters in ", h.a(href=f"/topics/{row.dead_letters}")[row.dead_letters], ".",
        ],
        section("In flight", _leases(row, leases), _redelivered(again)),
        section("Last settlements", _journal(log, row)),
        section("Dead letters", _dead(row, state, dead)),
    ]  # fmt: skip


def _message(row: QueueRow, partition: int, offset: int) -> Element:
    path = address(f"/topics/{row.topic}", {"at": offset, "partition": partition})
    return h.a(".nowrap", href=path)[f"{row.topic}/{partition} at {offset:,}"]


def _leases(row: QueueRow, leases: Sequence[Lease]) -> Node:
    return table(
        ("message", "worker", "delivery", "lease ends in"),
        [
            (
                _message(row, each.partition, each.offset),
                h.code(".nowrap")[each.worker],
                badge(f"{each.deliveries}", "warn" if each.deliveries > 1 else "muted"),
                span(each.left // SECOND) if each.left > 0 else badge("has ended", "bad"),
            )
            for each in leases[:_SHOWN]
        ],
        numeric=("delivery", "lease ends in"),
        empty="No message is in flight: no worker holds one.",
    )


def _redelivered(again: Sequence[Lease]) -> Node:
    if not again:
        return None
    return h.p(".hint")[
        f"{many(len(again), 'message')} in flight were handed out before: a worker failed, or its "
        "lease ended."
    ]


def _journal(log: Log, row: QueueRow) -> Node:
    try:
        wanted = Wanted("", None, "", "", None, "", _SETTLED)
        found = browse(log, log.topic(row.journal), wanted).records
    except UnknownTopic:
        return h.p(".empty")[f"The topic {row.journal} was deleted."]
    rows = []
    for record in found:
        line = dict(record.value)
        outcome, deliveries = line["outcome"], line["deliveries"]
        rows.append(
            (
                h.span(".nowrap", title=f"commit {record.commit:,}")[
                    when(to_micros(record.timestamp))
                ],
                badge(outcome, _KINDS.get(outcome, "muted")),
                _message(row, line["partition"], line["offset"]),
                "–" if deliveries is None else badge(str(deliveries), _often(deliveries)),
                h.code(".nowrap")[line["worker"]] if line["worker"] else "–",
                line["reason"] or "",
            )
        )
    return table(
        ("when", "outcome", "message", "delivery", "worker", "reason"), rows, numeric=("delivery",)
    )


def _often(deliveries: int) -> str:
    return "warn" if deliveries > 1 else "muted"


def _dead(row: QueueRow, state: QueueState, dead: Sequence[DeadMessage]) -> Node:
    if state.dead > len(dead):
        return h.p(".hint")[
            f"There are {state.dead:,}, too many to list: see ",
            h.a(href=f"/topics/{row.dead_letters}")[row.dead_letters], ".",
        ]  # fmt: skip
    reasons = Counter(each.reason for each in dead)
    return [
        bool(reasons)
        and table(
            ("reason", "dead letters"),
            [(reason, count(number)) for reason, number in reasons.most_common(_SHOWN)],
            numeric=("dead letters",),
            caption="By reason",
        ),
        table(
            ("message", "deliveries", "commit", "reason"),
            [
                (
                    _message(row, each.partition, each.offset),
                    count(each.deliveries),
                    count(each.commit),
                    h.strong(".k-bad")[each.reason],
                )
                for each in reversed(dead[-_SHOWN:])
            ],
            numeric=("deliveries", "commit"),
            caption=f"The newest {min(len(dead), _SHOWN)} of {len(dead):,}",
            empty="None: every message was accepted, or still waits.",
        ),
    ]
