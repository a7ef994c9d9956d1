"""Clicks out of order, and the windows over them, for the oracle and for Spark."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from headrace.operators.public import (
    Aggregation,
    App,
    Lateness,
    aggregate,
    count,
    hopping,
    session,
    sliding,
    tumbling,
)
from headrace.operators.window.meaning import meaning, row_of
from headrace.operators.window.windows import AnyWindow
from headrace.oracle.events import Event
from headrace.pipeline.stream import Source
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.studio.learn.simulation import Expected, Setup, Trial
from headrace.studio.learn.stage import Arrival, moment, recorded

EVENTS = 40
_OUT_OF_ORDER = 0.35
_FAR_BEHIND = 0.08


def declared(setup: Setup) -> Aggregation:
    """The aggregation of a setup, as a person would write it."""
    lateness = Lateness(_span(setup, "delay"), _span(setup, "grace"))
    topic = _topic(App("windows"))
    return aggregate(topic, by=(), window=_window(setup), lateness=lateness, clicks=count())


def _topic(app: App) -> Source:
    return app.topic("clicks", schema="id bigint, at timestamp", event_time="at")


def _window(setup: Setup) -> AnyWindow:
    size = _span(setup, "size")
    match setup.text("window"):
        case "tumbling":
            return tumbling(size)
        case "hopping":
            return hopping(size, every=size / 2)
        case "sliding":
            return sliding(size)
        case _:
            return session(size)


def _span(setup: Setup, name: str) -> timedelta:
    return timedelta(seconds=setup.number(name))


@dataclass(frozen=True)
class Clicks:
    """Events in the order of their arrival, by seconds since the beginning."""

    arrivals: tuple[float, ...]
    events: tuple[Event, ...]


@lru_cache(maxsize=64)
def clicks(seed: int, disorder: float) -> Clicks:
    """The clicks of a setup, as the log has them."""
    arrivals = generated(seed, disorder)
    events = (event for (event,) in recorded(arrivals))
    return Clicks(tuple(arrival.at for arrival in arrivals), tuple(events))


def generated(seed: int, disorder: float) -> tuple[Arrival, ...]:
    """Clicks that arrive late by up to `disorder` seconds, a few of them by three times that."""
    rng = random.Random(seed)
    source = _topic(App("windows"))
    made: list[Arrival] = []
    at = 0.0
    for number in range(EVENTS):
        # Bursts and pauses, so that sessions have something to find.
        at += rng.uniform(0.5, 3.0) if rng.random() < 0.8 else rng.uniform(6.0, 12.0)
        behind = rng.uniform(0, 0.5)
        if rng.random() < _OUT_OF_ORDER:
            behind = rng.uniform(0, disorder)
        if rng.random() < _FAR_BEHIND:
            behind = rng.uniform(disorder, 3 * disorder)
        row = {"id": number, "at": moment(round(at, 2))}
        made.append(Arrival(round(at + behind, 2), source, (row,)))
    return tuple(sorted(made, key=lambda arrival: arrival.at))


def trial(setup: Setup) -> Trial:
    """The same clicks and windows for Spark, and the windows by the oracle."""
    aggregation = declared(setup)
    found = meaning(aggregation, clicks(setup.seed, setup.number("disorder")).events)
    app = App("windows")
    _topic(app)
    app.view("clicks_per_window", aggregation)
    rows = [
        (row[WINDOW_START], row[WINDOW_END], row["clicks"])
        for row in (row_of(aggregation, key, pane) for key, pane in found.panes.items())
    ]
    arrivals = generated(setup.seed, setup.number("disorder"))
    columns = (WINDOW_START, WINDOW_END, "clicks")
    return Trial(app, arrivals, (Expected("clicks_per_window", columns, tuple(rows)),))
