"""Your own data: the windows of a topic in the log, and what each delay would have cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from statistics import median

from headrace.clock import SECOND, micros, to_datetime
from headrace.errors import InvalidSetting
from headrace.log import Capability, Log, Topic
from headrace.log.sample import Sample, newest
from headrace.operators.public import (
    Aggregation,
    Lateness,
    aggregate,
    count,
    hopping,
    session,
    tumbling,
)
from headrace.operators.window.meaning import Meaning, Pane, meaning
from headrace.operators.window.windows import AnyWindow
from headrace.oracle.events import Event
from headrace.oracle.excerpt import excerpt_of
from headrace.pipeline.stream import Source
from headrace.pipeline.where import caller
from headrace.studio.learn.frame import Axis, Band, Frame, Grid, Line, Number, Plot, Point
from headrace.studio.learn.simulation import Choice, Slider

ROWS = 2_000
NAME = "your-data"
_DELAYS = (0, 1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400)
_ASKED = 30
"""The delay of the question that the page asks."""
_POINTS = 500
_BANDS = 40

WINDOW = Choice(
    "window",
    "Windows",
    (("tumbling", "tumbling"), ("hopping", "hopping (by half)"), ("session", "session (gap)")),
    "tumbling",
)
SIZE = Choice(
    "size",
    "Size",
    (("10", "10 s"), ("60", "1 min"), ("300", "5 min"), ("3600", "1 h"), ("86400", "1 day")),
    "60",
)
DELAY = Slider("delay", "Delay", 0, 300, 10, 1, "s", "How long a window waits before it fires")
GRACE = Slider("grace", "Grace", 0, 300, 0, 1, "s", "How long a fired window may be corrected")


@dataclass(frozen=True)
class Chosen:
    """The topic and the windows that an address names."""

    topic: str
    window: str
    size: int
    delay: float
    grace: float

    def aggregation(self, topic: Topic, delay: float) -> Aggregation:
        """A count per window, with a delay."""
        assert topic.schema is not None
        source = Source(tuple(topic.schema.names), caller(), topic, None, None)
        lateness = Lateness(timedelta(seconds=delay), timedelta(seconds=self.grace))
        return aggregate(source, by=(), window=self._window(), lateness=lateness, rows=count())

    def _window(self) -> AnyWindow:
        size = timedelta(seconds=self.size)
        match self.window:
            case "tumbling":
                return tumbling(size)
            case "hopping":
                return hopping(size, every=size / 2)
            case _:
                return session(size)


@dataclass(frozen=True)
class Read:
    """The newest rows of a topic as events, and the frontier after each of their commits."""

    sample: Sample
    events: tuple[Event, ...]

    @cached_property
    def progress(self) -> list[tuple[int, int]]:
        """The frontier after each commit, and the time of the commit."""
        times = {event.commit: event.append_time for event in self.events}
        return [
            (commit.after, times[commit.number])
            for commit in self.sample.commits
            if commit.after is not None and commit.number in times
        ]

    def fired(self, moment: int) -> int | None:
        """The time at which the frontier passed a moment, in the rows that were read."""
        place = bisect_left(self.progress, (moment, 0))
        return self.progress[place][1] if place < len(self.progress) else None


@dataclass(frozen=True)
class Cost:
    """The cost of a delay: late rows, and the median seconds to a result."""

    delay: float
    late: int
    share: float
    wait: float | None


def read(log: Log, topic: str) -> Read:
    """The newest rows of a topic that has an event time."""
    state = log.topic(topic)
    if state.topic.event_time is None or state.topic.schema is None:
        raise InvalidSetting(
            f"Topic {topic!r} has no event time", hint="Choose another topic, or declare one"
        )
    sample = newest(log, topic, ROWS)
    return Read(sample, excerpt_of([sample]).events[-ROWS:])


def costs(chosen: Chosen, found: Read) -> list[Cost]:
    """Delays from none to the first with which nothing would have been late, and the chosen one."""
    wanted = sorted({*(float(delay) for delay in _DELAYS), chosen.delay})
    made = []
    for delay in wanted:
        aggregation = chosen.aggregation(found.sample.topic, delay)
        result = meaning(aggregation, found.events)
        late = len(result.late)
        waits = [
            (at - pane.end) / SECOND
            for pane in result.panes.values()
            if (at := found.fired(pane.end + micros(timedelta(seconds=delay)))) is not None
        ]
        share = late / result.pairs if result.pairs else 0.0
        made.append(Cost(delay, late, share, median(waits) if waits else None))
        if not late and delay >= max(chosen.delay, _ASKED):
            break
    return made


def frame(log: Log, chosen: Chosen) -> Frame:
    """The windows of the newest rows of a topic."""
    found = read(log, chosen.topic)
    aggregation = chosen.aggregation(found.sample.topic, chosen.delay)
    result = meaning(aggregation, found.events)
    table = costs(chosen, found)
    mine = next(cost for cost in table if cost.delay == chosen.delay)
    return Frame(
        0,
        0,
        _caption(found, mine, commits=Capability.NUMBERED_APPENDS in log.capabilities),
        (
            Number("rows read", len(found.events), hint=found.sample.text),
            Number("counted", result.counted, kind="good"),
            Number("late", mine.late, kind="late" if mine.late else ""),
            Number("windows", len(result.panes)),
            Number("time to result", "not yet" if mine.wait is None else f"{mine.wait:,.1f} s"),
            Number("no event time", len(result.dead), kind="bad" if result.dead else ""),
        ),
        (_plot(found, result, aggregation), _grid(table, chosen.delay)),
    )


def _caption(found: Read, mine: Cost, *, commits: bool) -> str:
    if not found.events:
        return "The topic has no rows yet."
    if not commits:
        return "Rows that would have been late are found in embedded logs only."
    wait = "no window has fired yet."
    if mine.wait is not None:
        wait = f"a result takes {mine.wait:,.1f} s after the end of its window (median)."
    return (
        f"Of {found.sample.text}, a delay of {mine.delay:g} s would have made {mine.late:,} late "
        f"({mine.share:.1%}), and {wait}"
    )


def _grid(table: Sequence[Cost], chosen: float) -> Grid:
    return Grid(
        "What would each delay have cost?",
        ("delay", "late rows", "share", "time to result"),
        tuple(
            (
                f"{cost.delay:g} s",
                f"{cost.late:,}",
                f"{cost.share:.2%}",
                "-" if cost.wait is None else f"{cost.wait:,.1f} s",
            )
            for cost in table
        ),
        tuple("now" if cost.delay == chosen else "late" if cost.late else "good" for cost in table),
    )


def _plot(found: Read, result: Meaning, aggregation: Aggregation) -> Plot:
    living = [event for event in found.events if event.event_time is not None and not event.dead]
    first = min((e.event_time or 0 for e in living), default=0)
    arrived = min((e.append_time for e in living), default=0)
    late = {(event.commit, event.partition, event.offset) for event, *_ in result.late}
    span = max((e.event_time or 0 for e in living), default=first) - first
    unit, scale = _unit(span)

    def place(moment: int, start: int) -> float:
        return round((moment - start) / scale, 3)

    on_time = [e for e in living if (e.commit, e.partition, e.offset) not in late]
    behind = [e for e in living if (e.commit, e.partition, e.offset) in late]
    points = [
        Point(place(e.event_time or 0, first), place(e.append_time, arrived), kind, words)
        for some, kind, words in ((on_time, "good", "on time"), (behind, "late", "late"))
        for e in some[:: max(1, -(-len(some) // _POINTS))]
    ]
    delay = micros(aggregation.lateness.delay)
    line = [
        (max(0.0, place(frontier - delay, first)), place(at, arrived))
        for frontier, at in found.progress[:: max(1, len(found.progress) // _POINTS)]
    ]
    top = max((point.y for point in points), default=1)
    return Plot(
        "Event time against arrival time",
        f"{len(living)} rows by event time and arrival time, {len(behind)} of them late",
        Axis(f"event time ({unit} after {to_datetime(first):%Y-%m-%d %H:%M:%S})", 0,
             max(1.0, span / scale)),
        Axis(f"arrival ({unit})", 0, max(1.0, 1.08 * top)),
        tuple(_bands(result, first, scale)),
        (Line(tuple(line), "now", "watermark" if line else ""),),
        tuple(points),
        height=360,
    )  # fmt: skip


def _bands(result: Meaning, first: int, scale: int) -> list[Band]:
    panes: list[Pane] = sorted(result.panes.values(), key=lambda pane: pane.start)
    if len(panes) > _BANDS:
        return []
    return [
        Band(
            max(0.0, round((pane.start - first) / scale, 3)),
            round((pane.end - first) / scale, 3),
            "a" if place % 2 else "b",
            str(len(pane.rows)) if len(panes) <= _BANDS // 2 else "",
        )
        for place, pane in enumerate(panes)
    ]


def _unit(span: int) -> tuple[str, int]:
    for unit, seconds in (("h", 3_600), ("min", 60)):
        if span > 3 * seconds * SECOND:
            return unit, seconds * SECOND
    return "s", SECOND


def topics(log: Log) -> list[str]:
    """The topics whose windows can be shown."""
    return [t.name for t in log.topics() if t.event_time is not None and t.schema is not None]


def chosen_from(names: Sequence[str], given: Mapping[str, str]) -> Chosen:
    """The choice that an address names; what it leaves out has its default."""
    topic = given.get("topic", names[0])
    if topic not in names:
        raise InvalidSetting(
            f"There is no topic {topic[:80]!r} with an event time",
            hint=f"There are: {', '.join(names[:10])}",
        )
    return Chosen(
        topic,
        WINDOW.parse(given.get("window", WINDOW.default)),
        int(SIZE.parse(given.get("size", SIZE.default))),
        DELAY.parse(given.get("delay", str(DELAY.default))),
        GRACE.parse(given.get("grace", str(GRACE.default))),
    )
