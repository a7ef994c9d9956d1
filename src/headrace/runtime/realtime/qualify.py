"""Which steps can run in real time, and why others cannot: known before Spark starts."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import InvalidPipeline
from headrace.operators.alerts.declare import Alerts
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stream_join.declare import Join
from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.app import App
from headrace.pipeline.stream import Aggregation, Stream, Top
from headrace.pipeline.time import Session, Sliding
from headrace.pipeline.where import Where
from headrace.plan.reads import branches
from headrace.plan.steps import Step, steps_of

_BATCHES = "Leave latency='real-time' away, and it runs in micro-batches"
_ALERTS = "hr.alerts(...) looks at what is recent, in real time too"


@dataclass(frozen=True)
class Reason:
    """Why something cannot run in real time, what to do, and where it was declared."""

    why: str
    instead: str
    where: Where


def check_real_time(app: App, log: str, *, until_caught_up: bool = False) -> list[Step]:
    """The steps of an application, if all of them can run in real time on a log."""
    steps = steps_of(app)
    if until_caught_up:
        raise InvalidPipeline(
            f"Application {app.name!r} runs in real time, and so it does not end by itself",
            hint="Stop it when you like, or let it catch up in micro-batches",
        )
    if not log.startswith("kafka:"):
        raise InvalidPipeline(
            f"Application {app.name!r} cannot run in real time on {log}: it is a broker's topics "
            "that Spark can read row by row",
            hint="headrace kafka up starts a broker, and --log kafka://HOST:PORT names it. "
            "With --latency micro-batch it runs on this log",
        )
    for step in steps:
        if (reason := why_not_real_time(step)) is not None:
            raise refusal(step.name, reason)
    return steps


def refusal(step: str, reason: Reason) -> InvalidPipeline:
    """The error for a step that cannot run in real time."""
    return InvalidPipeline(
        f"Step {step!r} cannot run in real time: {reason.why}",
        hint=f"{reason.instead}. See {reason.where}",
    )


def why_not_real_time(step: Step) -> Reason | None:
    """The reason for which a step cannot run in real time; None if it can."""
    if step.view is not None:
        return Reason(
            "a view is stored batch by batch",
            f"app.publish(...) writes to a topic as rows come. {_BATCHES}",
            step.view.where,
        )
    for topic, ways in branches(step.stream).items():
        if ways > 1:
            return Reason(
                f"it reads {topic!r} on {ways} ways, and Spark can follow one",
                "Let one step do it, or publish each by itself",
                step.stream.where,
            )
    if len(step.late) > 1:
        return Reason(
            f"its late rows go to {len(step.late)} topics, and a row can go to one",
            "Publish them once",
            step.stream.where,
        )
    return _why_not(step.stream)


def _why_not(stream: Stream) -> Reason | None:
    if (told := _words(stream)) is not None:
        return Reason(*told, stream.where)
    return next(filter(None, map(_why_not, stream.upstream)), None)


def _words(stream: Stream) -> tuple[str, str] | None:
    """Why a step of a stream cannot, and what to do about it."""
    match stream:
        case Alerts():
            return None
        case Aggregation(window=Session()):
            return "Spark merges sessions batch by batch", f"{_ALERTS}. {_BATCHES}"
        case Aggregation(window=Sliding()):
            return "a sliding window is computed batch by batch", f"{_ALERTS}. {_BATCHES}"
        case Aggregation(emit="final"):
            return (
                "its windows are told when they are final, and no row comes that would say so",
                _BATCHES,
            )
        case Aggregation() | Top():
            return (
                "a window that has come to its end is told once more, and no row comes that would "
                "say so",
                f"{_ALERTS}. {_BATCHES}",
            )
        case Join():
            return "Spark joins two streams batch by batch", _BATCHES
        case Enriched():
            return (
                f"mode={stream.mode!r} waits for what the table will say",
                "hr.alerts(...) looks up what a table says now, with mode='latest'. " + _BATCHES,
            )
        case TableJoin():
            return "joined tables are a view, which is stored batch by batch", _BATCHES
        case Deduplicated():
            return (
                "what repeats another row is known by what was stored batch by batch",
                f"Let readers drop it by its key. {_BATCHES}",
            )
        case Stateful():
            return "a function in Python keeps its state", f"{_ALERTS}. {_BATCHES}"
        case Fetched():
            return (
                "a function in Python asks elsewhere, and rows would wait for the answer",
                f"Keep what it would say in a topic, and look it up as a table. {_BATCHES}",
            )
        case _:
            return None
