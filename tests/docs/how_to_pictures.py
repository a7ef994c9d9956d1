"""The pictures of the how-to pages, drawn from real results of headrace."""

from __future__ import annotations

import inspect
from datetime import timedelta as td
from textwrap import dedent

import headrace as hr
from headrace.application.doctor.lag import growing_lag
from headrace.operators.window.meaning import meaning
from headrace.plan.batch import Timing
from tests.docs.pictures import LATENESS, NOON, START, event
from tests.docs.svg import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED, Sheet


def lag() -> Sheet:
    """The lag of three steps after each batch, and the batch at which doctor names the first."""
    steps = {
        "grows": [200 + 260 * n + 90 * (n % 3) for n in range(24)],
        "catches up": [5_900 - 160 * n + 120 * (n % 2) for n in range(24)],
        "up and down": [700 + 1_100 * (n % 6 == 2) - 300 * (n % 4 == 1) for n in range(24)],
    }
    sheet = Sheet(720, 300, "Three lags: one grows, one shrinks, one goes up and down")

    def place(batch: float, rows: float) -> tuple[float, float]:
        return 70 + batch * 23, 250 - rows / 31

    for rows in range(0, 6_001, 2_000):
        sheet.line([place(0, rows), place(23, rows)], FAINT, thick=1)
        sheet.text(60, place(0, rows)[1] + 4, f"{rows:,}", size=11, colour=GREY, anchor="end")
    for (name, lags), colour in zip(steps.items(), (ORANGE, BLUE, GREEN), strict=True):
        sheet.line([place(n, rows) for n, rows in enumerate(lags)], colour, thick=2)
        named = [growing_lag("a", _batches(lags[: n + 1]), None) is not None for n in range(24)]
        for n, rows in enumerate(lags):
            sheet.dot(*place(n, rows), RED if named[n] else colour, radius=4)
        sheet.text(*_right_of(place(23, lags[-1])), name, colour=colour, bold=True)
    sheet.text(340, 280, "batches", size=12, colour=GREY, anchor="middle")
    sheet.legend(70, 26, [(RED, "doctor says: lag grows")])
    sheet.text(260, 26, "rows that wait after each batch", size=12, colour=GREY)
    return sheet


def _batches(lags: list[int]) -> list[Timing]:
    return [Timing(n, 400, rows, 10, 900, 40, 60, 50, 0, 0) for n, rows in enumerate(lags)]


def _right_of(point: tuple[float, float]) -> tuple[float, float]:
    return point[0] + 10, point[1] + 4


def rebuild() -> Sheet:
    """A count that leaves out too much, and the correct one, built beside it."""
    prices = [30, 20, 2, 3, 0, 25, 4, 1, 40, 6, 0, 7, 22, 5, 3, 18]
    built, switched = 10, 12
    live, fixed = (_sold(prices, filtered) for filtered in ("price > 10", "price > 0"))
    sheet = Sheet(720, 262, "A view with a bug, the right one built beside it, and the switch")

    def place(commit: float, n: float) -> tuple[float, float]:
        return 44 + commit * 36, 208 - n * 11

    for number, price in enumerate(prices, 1):
        sheet.text(place(number, 0)[0], 226, str(price), size=11, colour=GREY, anchor="middle")
    sheet.line([place(0.6, 0), place(16.4, 0)], FAINT, thick=2)
    for counts, colour, first, last in (
        (live, ORANGE, 1, switched),
        (fixed, BLUE, 1, switched),
        (fixed, GREEN, switched, len(prices)),
    ):
        corners = [place(n, counts[n - 1]) for n in range(first, last + 1)]
        sheet.line(corners, colour, thick=2, dashed=colour == BLUE)
        for corner in corners:
            sheet.dot(*corner, colour, radius=4)
    for at, words in ((built, "--diff compares"), (switched, "the switch")):
        top, bottom = place(at, fixed[at - 1] + 1.5), place(at, live[at - 1])
        sheet.line([bottom, top], INK, thick=1)
        sheet.text(top[0] + 4, top[1] - 4, words, anchor="end", bold=True, size=12)
    sheet.text(60, 250, "each order with its price, in the order of the log", size=12, colour=GREY)
    labels = [
        (ORANGE, "price > 10, live"),
        (BLUE, "price > 0, built beside it"),
        (GREEN, "live now"),
    ]
    sheet.legend(60, 26, labels)
    return sheet


def _sold(prices: list[int], where: str) -> list[int]:
    """The number of counted orders after each order."""
    app = hr.App("shop")
    orders = app.topic("orders", schema="item string, price int, at timestamp", event_time="at")
    dear = hr.filter(orders, where)
    step = hr.aggregate(
        dear, by="item", window=hr.running(hr.FOREVER), lateness=LATENESS, n=hr.count()
    )
    events = [
        event(orders.topic, n, 0, START, {"item": "pen", "price": price, "at": NOON})
        for n, price in enumerate(prices, 1)
    ]
    found = (meaning(step, events[:n]).panes.values() for n in range(1, len(events) + 1))
    return [sum(len(pane.rows) for pane in panes) for panes in found]


QUERY = """SELECT item, COUNT(*) AS sold
FROM orders
WHERE paid > 0
GROUP BY item,
  TUMBLE(at, INTERVAL '1 minute')"""


def _call(orders: hr.Stream, lateness: hr.Lateness) -> hr.Aggregation:
    return hr.aggregate(
        hr.filter(orders, "paid > 0"),
        by="item",
        window=hr.tumbling(td(minutes=1)),
        lateness=lateness,
        sold=hr.count(),
    )


def sql() -> Sheet:
    """A query and a call that make the same declaration."""
    app = hr.App("shop")
    orders = app.topic("orders", schema="item string, paid int, at timestamp", event_time="at")
    written = hr.sql(QUERY, orders=orders, lateness=LATENESS)
    assert written == _call(orders, LATENESS)
    app.view("sales", written)
    call = dedent(inspect.getsource(_call).partition("return ")[2].replace("\n    ", "\n"))
    says = [line for line in str(app.explain()).splitlines() if line.startswith("  ")][:6]
    sheet = Sheet(720, 390, "A query in SQL and a call in Python become the same step")
    for x, words, text in ((24, "SQL", QUERY), (372, "Python", call)):
        sheet.text(x, 30, words, bold=True)
        sheet.bar(x, 40, 324, 134, BLUE)
        for n, line in enumerate(text.splitlines()):
            sheet.text(x + 12, 62 + 17 * n, line, size=12, code=True)
        sheet.line([(x + 162, 174), (360, 214)], GREY, thick=2)
    sheet.dot(360, 214, GREY)
    sheet.text(24, 208, "one declaration", bold=True)
    sheet.bar(24, 222, 672, 122, GREEN)
    for n, line in enumerate(says):
        word, _, rest = line.strip().partition(" ")
        sheet.text(36, 243 + 18 * n, word, size=12, code=True, bold=True)
        sheet.text(112, 243 + 18 * n, _shortened(rest.strip()), size=12, code=True)
    sheet.text(360, 372, "app.explain()", size=12, colour=GREY, anchor="middle")
    return sheet


def _shortened(line: str, most: int = 78) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"
