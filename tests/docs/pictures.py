"""The pictures of the concept pages, drawn from the oracle's results."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import headrace as hr
from headrace.clock import micros
from headrace.log.state import Topic
from headrace.operators.top.meaning import ranking
from headrace.operators.window.meaning import Pane, meaning
from headrace.operators.window.windows import AnyWindow
from headrace.oracle.events import Event
from tests.docs.svg import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED, Sheet

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATENESS = hr.Lateness(10 * SECOND, 30 * SECOND)
START = micros(NOON - datetime(1970, 1, 1, tzinfo=UTC))


def counting(
    window: AnyWindow, commits: list[list[tuple[str, int]]]
) -> tuple[hr.Aggregation, list[Event]]:
    """A count by key and window of rows, each a key and a second after noon, by commit."""
    app = hr.App("picture")
    source = app.topic("events", schema="k string, at timestamp", event_time="at")
    step = hr.aggregate(source, by="k", window=window, lateness=LATENESS, n=hr.count())
    events, frontier = [], None
    for number, rows in enumerate(commits, 1):
        for offset, (key, second) in enumerate(rows):
            row = {"k": key, "at": NOON + second * SECOND}
            events.append(event(source.topic, number, offset, frontier, row))
        newest = [START + second * 1_000_000 for _, second in rows]
        frontier = max([*newest, *([frontier] if frontier is not None else [])])
    return step, events


def event(
    topic: Topic, commit: int, offset: int, frontier: int | None, row: dict[str, object]
) -> Event:
    return Event(topic, commit, 0, offset, START + 3_600_000_000, frontier, row)


def second(moment: int) -> float:
    return (moment - START) / 1_000_000


def windows() -> Sheet:
    """The same events in each kind of window."""
    seconds = [4, 9, 16, 19, 33, 36, 52]
    kinds: dict[str, AnyWindow] = {
        "tumbling 20 s": hr.tumbling(20 * SECOND),
        "hopping 20 s / 10 s": hr.hopping(20 * SECOND, 10 * SECOND),
        "sliding 20 s": hr.sliding(20 * SECOND),
        "session 10 s": hr.session(10 * SECOND),
    }
    left, scale, top = 190, 6.2, 52
    rows = {
        name: sorted(
            meaning(*counting(kind, [[("a", s) for s in seconds]])).panes.values(),
            key=lambda pane: (pane.end, pane.start),
        )
        for name, kind in kinds.items()
    }
    lanes = {name: _lanes(panes) for name, panes in rows.items()}
    height = top + 34 + sum(24 * (max(used.values()) + 1) + 22 for used in lanes.values())
    sheet = Sheet(720, height, "Seven events of a key in tumbling, hopping, sliding and sessions")

    def x(at: float) -> float:
        return left + at * scale

    sheet.text(16, 34, "events of one key", bold=True)
    for at in range(0, 81, 10):
        sheet.line([(x(at), 44), (x(at), height - 22)], FAINT, thick=1)
        sheet.text(
            x(at), height - 8, f"{at // 60}:{at % 60:02d}", size=11, colour=GREY, anchor="middle"
        )
    for at in seconds:
        sheet.dot(x(at), 30)
    y = float(top)
    for (name, panes), colour in zip(rows.items(), (BLUE, GREEN, ORANGE, RED), strict=True):
        sheet.text(16, y + 15, name, colour=colour, bold=True)
        for pane in panes:
            lane = y + 24 * lanes[name][pane.end, pane.start]
            start, end = max(second(pane.start), -1), second(pane.end)
            sheet.bar(x(start), lane, (end - start) * scale, 20, colour, str(len(pane.rows)))
        y += 24 * (max(lanes[name].values()) + 1) + 22
    return sheet


def _lanes(panes: list[Pane]) -> dict[tuple[int, int], int]:
    """A lane for each window, so that none overlaps another."""
    ends: list[int] = []
    found = {}
    for pane in panes:
        free = next((n for n, end in enumerate(ends) if end <= pane.start), len(ends))
        ends[free : free + 1] = [pane.end]
        found[pane.end, pane.start] = free
    return found


COMMITS = [[5], [22, 30], [41], [36], [58], [28], [74], [50], [92], [31], [97], [110]]


def watermark() -> Sheet:
    """Rows in log order, the frontier, the watermark, and the late rows."""
    step, events = counting(hr.tumbling(20 * SECOND), [[("a", s) for s in c] for c in COMMITS])
    found = meaning(step, events)
    late = {(event.commit, event.offset) for event, *_ in found.late}
    amended = {
        (row.commit, row.offset)
        for pane in found.panes.values()
        for row in pane.rows
        if row.watermark is not None and pane.end <= row.watermark
    }
    sheet = Sheet(720, 360, "Event times by commit, with the frontier and the watermark")

    def place(commit: float, at: float) -> tuple[float, float]:
        return 60 + commit * 50, 310 - at * 2.3

    for at in range(0, 121, 20):
        sheet.line([place(0.3, at), place(12.7, at)], FAINT, thick=1)
        label = f"12:{at // 60:02d}:{at % 60:02d}"
        sheet.text(64, place(0, at)[1] + 4, label, size=11, colour=GREY, anchor="end")
    frontier = 0
    steps: list[tuple[float, float]] = []
    for number, times in enumerate(COMMITS, 1):
        frontier = max(frontier, *times)
        steps += [(number, frontier), (min(number + 1, 12.7), frontier)]
    sheet.line([place(*corner) for corner in steps], BLUE, thick=2)
    sheet.line([place(n, at - 10) for n, at in steps], BLUE, dashed=True)
    for event in events:
        key = (event.commit, event.offset)
        colour = RED if key in late else ORANGE if key in amended else GREEN
        sheet.dot(*place(event.commit, second(event.event_time or 0)), colour)
    for number in range(1, 13):
        sheet.text(place(number, 0)[0], 330, str(number), size=11, colour=GREY, anchor="middle")
    sheet.text(390, 348, "commits, in the order of the log", size=12, colour=GREY, anchor="middle")
    sheet.text(76, 24, "frontier", colour=BLUE, bold=True)
    sheet.line([(136, 20), (168, 20)], BLUE, thick=2)
    sheet.text(184, 24, "watermark, 10 s behind it", colour=BLUE)
    sheet.line([(350, 20), (386, 20)], BLUE, dashed=True)
    sheet.legend(412, 24, [(GREEN, "in time"), (ORANGE, "within the grace"), (RED, "late")])
    return sheet


def late() -> Sheet:
    """The fate of a row, by the frontier that it meets."""
    sheet = Sheet(720, 150, "A window, its delay and its grace, along the frontier")
    size = 60.0
    delay, grace = (s.total_seconds() for s in (LATENESS.delay, LATENESS.grace))
    edges = [0.0, size, size + delay, size + delay + grace, 135.0]
    names = ["the window 12:00:00 to 12:01:00", "delay", "grace", "closed"]
    labels = ["rows are counted", "", "rows correct it", "rows are late"]
    for (a, b), name, said, colour in zip(
        itertools.pairwise(edges), names, labels, (GREEN, GREEN, ORANGE, RED), strict=True
    ):
        x, width = 24 + a * 5, (b - a) * 5
        sheet.bar(x, 44, width, 34, colour, name)
        sheet.text(x + width / 2, 98, said, anchor="middle", colour=colour)
    for at, words in ((size + delay, "it fires"), (size + delay + grace, "it is final")):
        x = 24 + at * 5
        sheet.line([(x, 36), (x, 86)], INK, thick=2)
        sheet.text(x, 28, words, anchor="middle", bold=True)
    for at, anchor in zip(edges, ("start", "end", "start", "middle"), strict=False):
        stamp = (NOON + at * SECOND).strftime("%H:%M:%S")
        sheet.text(24 + at * 5, 122, stamp, size=11, colour=GREY, anchor=anchor)
    sheet.text(24, 142, "the frontier when a row of this window comes", size=12, colour=GREY)
    return sheet


def panes() -> Sheet:
    """One window after each commit, with the kind of its pane."""
    commits = [[3], [20, 41], [55], [64], [38], [72], [50, 52], [95], [12], [112], [8]]
    step, events = counting(hr.tumbling(60 * SECOND), [[("a", s) for s in c] for c in commits])
    sheet = Sheet(720, 250, "A window grows early, fires on time, is amended late, and is final")

    def place(commit: float, n: float) -> tuple[float, float]:
        return 50 + commit * 54, 190 - n * 17

    frontier, counts = 0, []
    for number in range(1, len(commits) + 1):
        so_far = meaning(step, [event for event in events if event.commit <= number])
        (pane,) = (p for p in so_far.panes.values() if p.start == START)
        frontier = max(frontier, *commits[number - 1])
        state = "open" if frontier < 70 else "fired" if frontier < 100 else "final"
        counts.append((number, len(pane.rows), state))
    points = [(n, count) for n, count, _ in counts for n in (n, n + 1)]
    sheet.line([place(*point) for point in points], GREY)
    colours = {"open": BLUE, "fired": ORANGE, "final": GREEN}
    before, fired = 0, False
    for number, count, state in counts:
        on_time = state != "open" and not fired
        fired = fired or on_time
        x, y = place(number, count)
        if count != before or on_time:
            sheet.dot(x, y, GREEN if on_time else colours[state])
            sheet.text(x, y - 10, str(count), anchor="middle", size=12)
        before = count
        times = ", ".join(f":{s:02d}" if s < 60 else f"1:{s - 60:02d}" for s in commits[number - 1])
        sheet.text(x, 210, times, size=11, colour=GREY, anchor="middle")
    sheet.text(24, 234, "each commit, with the event times in it", size=12, colour=GREY)
    sheet.legend(60, 28, [(BLUE, "early"), (GREEN, "on time"), (ORANGE, "late")])
    return sheet


def arrival() -> Sheet:
    """Events by event time and by arrival."""
    pairs = [(2, 5), (8, 11), (15, 33), (20, 22), (29, 36), (34, 35), (41, 75), (52, 55), (60, 63)]
    sheet = Sheet(720, 190, "Events on the line of when they happened, and of when they came in")

    def x(at: float) -> float:
        return 150 + at * 6.8

    sheet.text(16, 54, "happened", bold=True)
    sheet.text(16, 144, "came in", bold=True)
    for y in (50, 140):
        sheet.line([(x(0), y), (x(80), y)], FAINT, thick=2)
    for at in range(0, 81, 20):
        sheet.line([(x(at), 36), (x(at), 154)], FAINT, thick=1)
        label = (NOON + at * SECOND).strftime("%H:%M:%S")
        sheet.text(x(at), 176, label, size=11, colour=GREY, anchor="middle")
    for happened, came in pairs:
        crossed = any(h > happened and c < came for h, c in pairs)
        colour = ORANGE if crossed else BLUE
        sheet.line([(x(happened), 50), (x(came), 140)], colour)
        sheet.dot(x(happened), 50, colour)
        sheet.dot(x(came), 140, colour)
    sheet.legend(150, 24, [(BLUE, "in order"), (ORANGE, "overtaken on the way")])
    return sheet


def leaderboard() -> Sheet:
    """The ranks of a live board after each commit."""
    names = ("ann", "ben", "cat", "dan")
    order = ["a", "b", "a", "c", "c", "d", "c", "a", "d", "d", "b", "d", "d", "b", "b", "b"]
    commits = [[({n[0]: n for n in names}[key], at)] for at, key in enumerate(order)]
    sheet = Sheet(720, 220, "The three highest of a running count, after each row")

    def place(commit: int, rank: int) -> tuple[float, float]:
        return 44 + commit * 36, 20 + rank * 48

    step, events = counting(hr.running(hr.FOREVER), commits)
    top = hr.top(step, 3, by="n")
    places: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for number in range(1, len(commits) + 1):
        so_far = meaning(step, [event for event in events if event.commit <= number])
        for (rank,), (key, _) in ranking(top, so_far, None).items():
            places[key[0]].append((number, rank))
    for rank in (1, 2, 3):
        y = 20 + rank * 48
        sheet.line([(60, y), (660, y)], FAINT, thick=1)
        sheet.text(40, y + 5, str(rank), bold=True, anchor="middle")
    for (name, seen), colour in zip(places.items(), (BLUE, GREEN, ORANGE, RED), strict=True):
        for (n, a), (m, b) in itertools.pairwise(seen):
            if m == n + 1:
                sheet.line([place(n, a), place(m, b)], colour, thick=3)
        for number, rank in seen:
            sheet.dot(*place(number, rank), colour, radius=6)
        if seen and seen[-1][0] == len(commits):
            sheet.text(640, 25 + seen[-1][1] * 48, name, colour=colour, bold=True)
    for number, letter in enumerate(order, 1):
        sheet.text(44 + number * 36, 204, letter, size=11, colour=GREY, anchor="middle")
    sheet.text(60, 28, "places after each row; below, whose row it was", size=12, colour=GREY)
    return sheet
