"""The picture of joins, drawn from the oracle's results."""

from __future__ import annotations

from typing import Any

import headrace as hr
from headrace.clock import to_micros
from headrace.log.state import Topic
from headrace.operators.stream_join.meaning import joined
from headrace.operators.table_lookup.meaning import looked_up
from headrace.oracle.events import Event
from headrace.oracle.tables import Version
from tests.docs.pictures import NOON, SECOND, START, event
from tests.docs.svg import BLUE, FAINT, GREEN, GREY, ORANGE, RED, Sheet

MINUTE = 60 * SECOND
SHOWN = {1: 0, 2: 3, 3: 8, 4: 14, 5: 21}
CLICKS = {1: 4, 3: 11, 4: 27, 6: 16}
VERSIONS = [(0, "basic"), (12, "gold"), (24, "black")]
ORDERS = [2, 9, 12, 20, 30]


def joins() -> Sheet:
    """Pairs of two streams within ten minutes, and rows with the version of their time."""
    sheet = Sheet(720, 330, "Impressions with their clicks, and orders with the tier of their time")

    def x(minute: float) -> float:
        return 150 + minute * 16.5

    for minute in range(0, 31, 10):
        sheet.line([(x(minute), 40), (x(minute), 300)], FAINT, thick=1)
        stamp = (NOON + minute * MINUTE).strftime("%H:%M")
        sheet.text(x(minute), 318, stamp, size=11, colour=GREY, anchor="middle")
    for y, name in ((60, "shown"), (140, "clicks"), (212, "customer"), (282, "orders")):
        sheet.text(16, y + 4, name, bold=True)
    for row in _pairs():
        left, right = (_minute(row[name]) for name in ("at", "click_at"))
        if left is not None and right is not None:
            sheet.line([(x(left), 60), (x(right), 140)], GREEN, thick=2)
        colour = GREEN if left is not None and right is not None else ORANGE
        for moment, y in ((left, 60), (right, 140)):
            if moment is not None:
                sheet.dot(x(moment), y, colour)
    ends = [minute for minute, _ in VERSIONS[1:]] + [32]
    colours = dict(zip((tier for _, tier in VERSIONS), (BLUE, ORANGE, RED), strict=True))
    for (minute, tier), end in zip(VERSIONS, ends, strict=True):
        sheet.bar(x(minute), 200, x(end) - x(minute), 24, colours[tier], tier)
    for row in _found():
        at = _minute(row["at"])
        assert at is not None
        sheet.line([(x(at), 282), (x(at), 226)], colours[row["tier"]], dashed=True)
        sheet.dot(x(at), 282, colours[row["tier"]])
    sheet.legend(150, 24, [(GREEN, "a pair, within 10 minutes"), (ORANGE, "without another")])
    return sheet


def _pairs() -> list[dict[str, Any]]:
    app = hr.App("picture")
    shown = app.topic("shown", schema="ad int, at timestamp", event_time="at")
    clicks = app.topic("clicks", schema="ad int, at timestamp", event_time="at")
    join = hr.join(
        shown, clicks, on="ad", after=10 * MINUTE, delay=MINUTE, how="full", prefix="click_"
    )
    events = [
        *(_event(shown.topic, n, {"ad": ad}, at) for n, (ad, at) in enumerate(SHOWN.items(), 1)),
        *(_event(clicks.topic, n, {"ad": ad}, at) for n, (ad, at) in enumerate(CLICKS.items(), 1)),
    ]
    far = START + 3_600_000_000
    return joined(join, events, {"shown": far, "clicks": far}).rows


def _found() -> list[dict[str, Any]]:
    app = hr.App("picture")
    orders = app.topic("orders", schema="who string, at timestamp", event_time="at")
    changes = app.topic("changes", schema="who string, tier string, at timestamp", event_time="at")
    table = hr.table(hr.select(changes, "who", "tier"), key="who")
    step = hr.enrich(orders, table, on="who", wait=MINUTE)
    versions = [
        Version(("ann",), START + minute * 60_000_000, 1, 0, n, {"who": "ann", "tier": tier}, None)
        for n, (minute, tier) in enumerate(VERSIONS)
    ]
    events = [_event(orders.topic, 1, {"who": "ann"}, minute) for minute in ORDERS]
    return looked_up(step, events, versions, lambda *_: START + 3_600_000_000, 1).rows


def _event(topic: Topic, number: int, row: dict[str, Any], minute: int) -> Event:
    return event(topic, number, minute, None, {**row, "at": NOON + minute * MINUTE})


def _minute(moment: Any) -> float | None:
    return None if moment is None else (to_micros(moment) - START) / 60_000_000
