"""Windows: events out of order on two axes, and the watermark between them."""

from __future__ import annotations

from headrace.clock import micros
from headrace.operators.public import (
    Aggregation,
    Sliding,
)
from headrace.operators.window.emission.meaning import Cut, Said, published
from headrace.operators.window.meaning import Counted, Meaning, Pane, meaning
from headrace.oracle.events import Event
from headrace.pipeline.output import Output
from headrace.pipeline.where import caller
from headrace.studio.learn.clicks import EVENTS, Clicks, clicks, declared, trial
from headrace.studio.learn.frame import Axis, Band, Frame, Grid, Line, Number, Plot, Point
from headrace.studio.learn.simulation import (
    Choice,
    Prompt,
    Setup,
    Simulation,
    Slider,
)
from headrace.studio.learn.stage import clock_text, seconds

_ROWS = 10


def frame(setup: Setup, step: int) -> Frame:
    """The windows after so many clicks have arrived."""
    aggregation = declared(setup)
    all_clicks = clicks(setup.seed, setup.number("disorder"))
    seen = all_clicks.events[:step]
    found = meaning(aggregation, seen)
    frontier = _frontier(seen)
    said = _published(aggregation, all_clicks, step)
    return Frame(
        step,
        EVENTS,
        _caption(all_clicks, found, step),
        _numbers(aggregation, found, said, frontier),
        (_plot(aggregation, all_clicks, found, step), _grid(said)),
    )


def _frontier(seen: tuple[Event, ...]) -> int | None:
    """The highest event time so far, as the log keeps it."""
    last = seen[-1] if seen else None
    if last is None or last.event_time is None:
        return None
    return last.event_time if last.frontier is None else max(last.frontier, last.event_time)


def _published(aggregation: Aggregation, all_clicks: Clicks, step: int) -> list[Said]:
    """The panes that are published if every click is a batch of its own."""
    seen = all_clicks.events[:step]
    cuts = [
        Cut({event.topic.name: event.commit}, _frontier(seen[: number + 1]), event.append_time)
        for number, event in enumerate(seen)
    ]
    return published(Output("clicks_per_window", aggregation, caller()), seen, cuts)


def _state(aggregation: Aggregation, pane: Pane, frontier: int | None) -> str:
    """A window as a reader sees it: open, fired (it may change within grace), or final."""
    delay, grace = micros(aggregation.lateness.delay), micros(aggregation.lateness.grace)
    if frontier is None or pane.end > frontier - delay:
        return "open"
    settles = micros(aggregation.window.settles)
    return "final" if pane.end + settles <= frontier - delay - grace else "fired"


def _numbers(
    aggregation: Aggregation, found: Meaning, said: list[Said], frontier: int | None
) -> tuple[Number, ...]:
    states = [_state(aggregation, pane, frontier) for pane in found.panes.values()]
    delay = aggregation.lateness.delay
    revisions = sum(1 for each in said if each.why == "late")
    watermark = "none yet"
    if frontier is not None:
        watermark = clock_text(seconds(frontier) - delay.total_seconds())
    return (
        Number("rows", found.pairs, hint="A row in two hopping windows counts for each of them"),
        Number("counted", found.counted, kind="good"),
        Number("late", len(found.late), kind="late" * bool(found.late)),
        Number("watermark", watermark, hint="The highest event time so far, less the delay"),
        Number("open", states.count("open")),
        Number("fired", states.count("fired"), hint="Published, and may change within grace"),
        Number("final", states.count("final"), hint="Nothing can change them"),
        Number("corrections", revisions, kind="warn" if revisions else ""),
    )


def _caption(all_clicks: Clicks, found: Meaning, step: int) -> str:
    if step == 0:
        return "No click has arrived yet. Press play, or step forward."
    event = all_clicks.events[step - 1]
    assert event.event_time is not None
    happened = seconds(event.event_time)
    behind = all_clicks.arrivals[step - 1] - happened
    end = {
        "good": "on time.",
        "warn": "within grace. Its window had fired, and is corrected.",
        "late": "too late. Its window is final, so it goes to the late stream.",
    }[_fates(found)[_place(event)]]
    return f"A click of {clock_text(happened)} arrived {behind:.1f} s later: {end}"


_Place = tuple[int, int, int]


def _place(row: Event | Counted) -> _Place:
    return (row.commit, row.partition, row.offset)


def _fates(found: Meaning) -> dict[_Place, str]:
    """The kind of each row: late for a window, an amendment of one, or on time for all."""
    fates = {}
    for pane in found.panes.values():
        for row in pane.rows:
            amends = row.watermark is not None and pane.end <= row.watermark
            if amends or _place(row) not in fates:
                fates[_place(row)] = "warn" if amends else "good"
    return fates | {_place(event): "late" for event, *_ in found.late}


def _plot(aggregation: Aggregation, all_clicks: Clicks, found: Meaning, step: int) -> Plot:
    seen, arrivals = all_clicks.events[:step], all_clicks.arrivals
    last = max(arrivals)
    frontier = _frontier(seen)
    fates = _fates(found)
    words = {"good": "on time", "warn": "within grace", "late": "late"}
    points = []
    for event, arrived in zip(seen, arrivals, strict=False):
        assert event.event_time is not None
        happened, kind = seconds(event.event_time), fates[_place(event)]
        points.append(Point(happened, arrived, kind, f"{clock_text(happened)}: {words[kind]}"))
    end = seconds(max(e.event_time or 0 for e in all_clicks.events))
    return Plot(
        "Event time against arrival time",
        f"{step} clicks by event time and arrival time, {len(found.late)} of them late",
        Axis("event time: when it happened (s)", 0, round(end) + 5),
        Axis("arrival (s)", 0, round(last) + 5),
        tuple(_bands(aggregation, found, frontier)),
        (
            Line(((0, 0), (round(end), round(end))), "muted", "no delay"),
            Line(_watermark(aggregation, seen, arrivals), "now", "watermark" if step else ""),
        ),
        tuple(points),
        height=380,
    )


def _watermark(
    aggregation: Aggregation, seen: tuple[Event, ...], arrivals: tuple[float, ...]
) -> tuple[tuple[float, float], ...]:
    delay = aggregation.lateness.delay.total_seconds()
    places: list[tuple[float, float]] = []
    for number, arrived in enumerate(arrivals[: len(seen)]):
        frontier = _frontier(seen[: number + 1])
        assert frontier is not None
        if places:
            places.append((places[-1][0], arrived))
        places.append((max(0.0, seconds(frontier) - delay), arrived))
    return tuple(places)


def _bands(aggregation: Aggregation, found: Meaning, frontier: int | None) -> list[Band]:
    kinds = {"open": "a", "fired": "b", "final": "muted"}
    panes = list(found.panes.values())
    if isinstance(aggregation.window, Sliding):
        # A window for each click would cover all others: the newest alone.
        panes = [max(panes, key=lambda pane: pane.revision)] if panes else []
    return [
        Band(
            seconds(pane.start),
            seconds(pane.end),
            kinds[_state(aggregation, pane, frontier)],
            str(len(pane.rows)),
        )
        for pane in panes
    ]


def _grid(said: list[Said]) -> Grid:
    newest = said[::-1][:_ROWS]
    return Grid(
        "What was published, the newest first",
        ("window", "clicks", "pane"),
        tuple(
            (
                f"{clock_text(seconds(each.pane.start))} – {clock_text(seconds(each.pane.end))}",
                str(len(each.pane.rows)),
                each.why,
            )
            for each in newest
        ),
        tuple({"late": "warn", "on time": "good"}.get(each.why, "muted") for each in newest),
    )


SIMULATION = Simulation(
    name="windows",
    title="Windows and watermarks",
    idea="An unbounded stream is cut into windows by the time when things happened, not by the "
    "time when they arrived. The watermark says how long to wait for what is late.",
    settings=(
        Choice(
            "window",
            "Windows",
            (
                ("tumbling", "tumbling"),
                ("hopping", "hopping (by half)"),
                ("sliding", "sliding"),
                ("session", "session (size is the gap)"),
            ),
            "tumbling",
        ),
        Slider("size", "Size", 4, 40, 20, 2, "s"),
        Slider("delay", "Delay", 0, 30, 5, 1, "s", "How long a window waits before it fires"),
        Slider("grace", "Grace", 0, 30, 5, 1, "s", "How long a fired window may be corrected"),
        Slider("disorder", "Disorder", 0, 20, 8, 1, "s", "How late an event may arrive"),
    ),
    frame=frame,
    steps=lambda setup: EVENTS,
    prompts=(
        Prompt("Do not wait at all, and see what is lost.", EVENTS, {"delay": 0, "grace": 0}),
        Prompt("Wait for 15 s: nothing is late, and results come later.", EVENTS, {"delay": 15}),
        Prompt("Fire at once, and correct within grace.", EVENTS, {"delay": 0, "grace": 20}),
        Prompt(
            "Sessions: a late click joins two of them.", EVENTS, {"window": "session", "size": 6}
        ),
    ),
    look_for=(
        "A point far above the diagonal arrived long after it happened.",
        "The watermark never goes back. A window fires when the watermark passes its end.",
        "Rows are counted or late, and the two add up: nothing is dropped in silence.",
    ),
    question="Why does a larger delay never make a result wrong?",
    answer="The delay only decides when a window fires. A window that waits longer counts every "
    "row that one with a shorter delay would have counted, and some that it would have called "
    "late. The price is time: its result comes later.",
    concept="concepts/windows.md",
    on_spark=trial,
)
