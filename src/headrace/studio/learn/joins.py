"""Joins: three of them over the same events, and the state that each one keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from headrace.clock import SECOND, to_micros
from headrace.oracle.events import Event
from headrace.pipeline.app import App
from headrace.studio.learn.frame import Axis, Cell, Frame, Grid, Lane, Lanes, Line, Number, Plot
from headrace.studio.learn.joining import Joining, joining
from headrace.studio.learn.shop import Arrived, arrivals, generated, joins, of_topic
from headrace.studio.learn.simulation import (
    Expected,
    Prompt,
    Setup,
    Simulation,
    Slider,
    Trial,
)
from headrace.studio.learn.stage import clock_text, seconds

_ROWS = 10
_CELLS = 15


@lru_cache(maxsize=32)
def _history(seed: int, changes: int, bound: float, delay: float) -> tuple[Joining, ...]:
    """The joins after each arrival, from none on."""
    declared = joins(bound, delay)
    seen: list[Event] = []
    found = [joining(declared, seen)]
    for arrived in arrivals(seed, changes):
        seen += arrived.events
        found.append(joining(declared, seen))
    return tuple(found)


def history(setup: Setup) -> tuple[Joining, ...]:
    """The joins of a setup after each arrival, from none on."""
    return _history(
        setup.seed, setup.whole("changes"), setup.number("bound"), setup.number("delay")
    )


def frame(setup: Setup, step: int) -> Frame:
    """The joins after so many arrivals."""
    everything = arrivals(setup.seed, setup.whole("changes"))
    before = history(setup)
    now = before[step]
    seen = everything[:step]
    return Frame(
        step,
        len(everything),
        _caption(seen, before[: step + 1]),
        _numbers(now),
        (_plot(before, step, len(everything)), _buffers(now, seen), _results(now, seen)),
    )


def _numbers(now: Joining) -> tuple[Number, ...]:
    streams, lookup, tables = now.held
    late = len(now.streams.late)
    return (
        Number("pairs", len(now.streams.pairs), kind="good", hint="Orders with their payment"),
        Number("unpaid", len(now.streams.unmatched), hint="No payment can come in time any more"),
        Number("late", late, kind="late" * bool(late), hint="Behind their topic by the delay"),
        Number("held by stream–stream", streams, hint="Rows that may still find a match"),
        Number("evicted", now.evicted, hint="The watermark of the other topic has passed them"),
        Number("held by stream–table", lookup, hint="Every version of every user"),
        Number("orders that wait", now.lookup.waiting, hint="In the log, for the table's time"),
        Number("held by table–table", tables, hint="The newest row of every order and user"),
        Number("replaced", len(now.versions) - len(now.users), hint="Older versions of users"),
        Number(
            "tiers that differ",
            len(now.apart),
            kind="warn" * bool(now.apart),
            hint="The tier then is not the tier now",
        ),
    )


def _caption(seen: Sequence[Arrived], before: Sequence[Joining]) -> str:
    if not seen:
        return "Nothing has arrived yet. Press play, or step forward."
    was, now = before[-2:]
    last = seen[-1]
    (row,) = (event.row for event in last.events[:1])
    gone = now.evicted - was.evicted
    evicted = f" The stream join evicts {gone} row{'s' * (gone > 1)}." if gone else ""
    if len(now.streams.late) > len(was.streams.late):
        return f"A row of {last.topic} is late for the stream join: it is set aside.{evicted}"
    match last.topic:
        case "orders":
            return f"{row['user']} places order {row['id']}.{evicted}"
        case "payments":
            paid = len(now.streams.pairs) > len(was.streams.pairs)
            end = "the stream join has a pair." if paid else "no order matches within the bound."
            return f"Order {row['id']} is paid: {end}{evicted}"
    if len(seen) == 1:
        return f"The table of {len(last.events)} users arrives. All have the tier basic."
    changed = sum(1 for number, tier in now.now.items() if was.now[number] != tier)
    return (
        f"{row['name']} is now {row['tier']}. The joined tables change {changed} old "
        f"row{'s' * (changed != 1)}; the lookup changes none."
    )


def _plot(before: Sequence[Joining], step: int, steps: int) -> Plot:
    most = max(max(each.held) for each in before)
    names = ("stream–stream", "stream–table", "table–table")
    now = dict(zip(names, before[step].held, strict=True))
    said = ", ".join(f"{name} {rows}" for name, rows in now.items())
    return Plot(
        "State: rows that each join holds",
        f"Rows held after {step} arrivals: {said}",
        Axis("arrivals", 0, steps),
        Axis("rows held", 0, most + 3),
        lines=tuple(
            Line(
                tuple((number, each.held[place]) for number, each in enumerate(before[: step + 1])),
                "abd"[place],
                name if step else "",
            )
            for place, name in enumerate(names)
        ),
        height=240,
    )


def _buffers(now: Joining, seen: Sequence[Arrived]) -> Lanes:
    events = [event for arrived in seen for event in arrived.events]
    late = {id(side.event) for _, side in now.streams.late}

    def rows(name: str, held: Sequence[Event]) -> Lane:
        kept = {id(event) for event in held}
        mine = of_topic(events, name)
        cells = [
            Cell(str(event.row["id"]), "late", "late: set aside")
            if id(event) in late
            else Cell(str(event.row["id"]), "a", "held")
            if id(event) in kept
            else Cell(str(event.row["id"]), "muted", "evicted")
            for event in mine
        ]
        return _lane(name, cells, f"{len(kept)} held")

    newest = set(map(id, now.users))
    versions = [
        (f"{version.row['name'][0]}:{version.row['tier'][0]}", id(version) in newest, version.row)
        for version in now.versions
        if version.row is not None
    ]
    words = [f"{row['name']} is {row['tier']}" for *_, row in versions]
    lookup = [Cell(text, "b", said) for (text, *_), said in zip(versions, words, strict=True)]
    tables = [
        Cell(text, "d" if kept else "muted", said if kept else f"{said}: replaced")
        for (text, kept, _), said in zip(versions, words, strict=True)
    ]
    return Lanes(
        "Buffers: colour is held, dashed is gone, red is late",
        f"The stream join holds {len(now.orders)} orders and {len(now.payments)} payments; the "
        f"lookup {len(now.versions)} versions of users; the joined tables {len(now.users)}",
        (
            rows("orders", now.orders),
            rows("payments", now.payments),
            _lane("users: lookup", lookup, "every version"),
            _lane("users: table", tables, "the newest"),
        ),
    )


def _lane(label: str, cells: Sequence[Cell], note: str) -> Lane:
    first = max(0, len(cells) - _CELLS)
    return Lane(label, tuple(cells[first:]), first=first, note=note)


def _later(event: Event, paid: datetime) -> float:
    return (to_micros(paid) - (event.event_time or 0)) / SECOND


def _results(now: Joining, seen: Sequence[Arrived]) -> Grid:
    orders = [event for arrived in seen for event in arrived.events if arrived.topic == "orders"]
    paid = {row["id"]: row for row in now.streams.rows}
    late = {side.row["id"] for name, side in now.streams.late if name == "left"}
    then, tiers, apart = now.then, now.now, now.apart

    def pay(event: Event) -> str:
        number = event.row["id"]
        if number in late:
            return "late: set aside"
        if number not in paid:
            return "not known yet"
        at = paid[number]["paid_at"]
        return "no payment in time" if at is None else f"paid {_later(event, at):.1f} s later"

    newest = orders[::-1][:_ROWS]
    return Grid(
        "The three answers for each order, the newest first",
        ("order", "stream–stream: payment", "stream–table: tier then", "table–table: tier now"),
        tuple(
            (
                f"{event.row['id']}: {event.row['user']}, "
                f"{clock_text(seconds(event.event_time or 0))}",
                pay(event),
                then.get(event.row["id"], "waits") or "none",
                tiers[event.row["id"]] or "none",
            )
            for event in newest
        ),
        tuple("warn" if event.row["id"] in apart else "" for event in newest),
    )


def trial(setup: Setup) -> Trial:
    """The same events and joins for Spark, and the answers by the oracle."""
    app = App("shop")
    declared = joins(setup.number("bound"), setup.number("delay"), app)
    app.view("stream_stream", declared.streams, key="id")
    app.view("stream_table", declared.lookup, key="id")
    app.view("table_table", declared.tables)
    last = history(setup)[-1]
    paid = tuple((row["id"], row["paid_at"]) for row in last.streams.rows)
    return Trial(
        app,
        generated(setup.seed, setup.whole("changes")),
        (
            Expected("stream_stream", ("id", "paid_at"), paid),
            Expected("stream_table", ("id", "user_tier"), tuple(last.then.items())),
            Expected("table_table", ("id", "user_tier"), tuple(last.now.items())),
        ),
    )


SIMULATION = Simulation(
    name="joins",
    title="Three joins, three states",
    idea="A join must remember rows to find their partners. Two streams remember rows until the "
    "time bound has passed, a lookup remembers versions of a table, and joined tables remember "
    "both tables.",
    settings=(
        Slider(
            "bound", "Time bound", 2, 60, 20, 2, "s", "How long after its order a payment counts"
        ),
        Slider("delay", "Delay", 0, 20, 5, 1, "s", "How far a row may be behind its topic"),
        Slider("changes", "Changes of users", 0, 24, 8, 1, "", "How often a user's tier changes"),
    ),
    frame=frame,
    steps=lambda setup: len(arrivals(setup.seed, setup.whole("changes"))),
    prompts=(
        Prompt(
            "Let users change often: one join keeps the old tier, one does not.",
            50,
            {"changes": 24},
        ),
        Prompt("A bound of 60 s: a few more pairs, and a larger state.", 34, {"bound": 60}),
        Prompt("Do not wait for late rows: orders lose their payments.", 34, {"delay": 0}),
    ),
    look_for=(
        "The state of the stream join goes up and down: a row is evicted when the watermark of the "
        "other topic passes its time and the bound.",
        "The lookup holds every version of a user, since an order of any time may come. Its state "
        "grows with each change.",
        "A row of the last column may change long after its order. The other two answers are given "
        "once.",
    ),
    question="An order of yesterday is replayed today. Which of the joins give the answer of "
    "yesterday?",
    answer="The stream join and the lookup: both go by event time, and the log says which rows "
    "were late. The joined tables show the tier of now, for old orders too. That is what a view of "
    "the current state is for, and it is wrong for an invoice.",
    concept="concepts/joins.md",
    on_spark=trial,
)
