"""The reasons why a step has no output yet, or what its next output waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.application.doctor.finding import span, when
from headrace.application.doctor.records import Held, Record
from headrace.clock import micros
from headrace.log import TopicState
from headrace.operators.contract import Panes
from headrace.operators.registry import operator_of
from headrace.plan.steps import Step
from headrace.wording import many


@dataclass(frozen=True)
class Wait:
    """A reason: a stable name, a text, and a remedy if there is one."""

    name: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Backlog:
    """The rows and commits that a step has not read yet."""

    rows: int
    commits: int


def waits(
    step: Step,
    topics: Mapping[str, TopicState | None],
    record: Record | None,
    held: Held,
    backlog: Backlog,
    *,
    running: bool,
    by_partition: bool = False,
) -> list[Wait]:
    """All reasons, the most important first. A missing topic is None.

    With `by_partition`, as on Kafka, event time is that of the partition which is furthest behind,
    and only rows that were read have moved it.
    """
    found = [
        wait
        for name, state in topics.items()
        if (wait := _empty(step, name, state, by_partition=by_partition, read=record is not None))
    ]
    found += _behind(record, backlog, running=running)
    if record is None:
        return found
    if len(topics) > 1 and step.stream.follows_slowest:
        found += _held_back(topics)
    law = record.law
    if law.rows and not law.counted:
        parts = [("filtered", law.filtered), ("late", law.late), ("dead", law.dead)]
        parts += [("waiting", law.waiting), ("duplicates", law.duplicates)]
        counts = ", ".join(f"{n:,} {what}" for what, n in parts if n) or "all are tombstones"
        found.append(
            Wait(
                "nothing counts",
                f"none of {many(law.rows, 'row')} was counted: {counts}",
                _why_not(step, law.filtered, law.late, law.dead),
            )
        )
    panes = operator_of(step.computed).panes(step.computed)
    if panes is not None and held.oldest is not None:
        found += _open(panes, held, record.frontier, _idle(topics))
    return found


def _empty(
    step: Step, name: str, state: TopicState | None, *, by_partition: bool, read: bool
) -> Wait | None:
    if state is None:
        return Wait("no topic", f"topic {name} does not exist yet", "The first run creates it")
    if not state.records and state.frontier is None:
        return Wait("topic empty", f"topic {name} is empty", f"headrace produce {name}")
    if state.frontier is None and by_partition:
        return _held_by_partition(name, state) if read else None
    if state.frontier is None:
        return Wait(
            "no event time",
            f"none of the {state.records:,} rows of topic {name} has a valid "
            f"event time ({state.topic.event_time})",
            f"headrace consume {step.dead_letters} shows them and the reasons",
        )
    return None


def _held_by_partition(name: str, state: TopicState) -> Wait:
    """A partition in which event time has not begun."""
    empty = [part.partition for part in state.partitions if not part.end]
    which = f"partition {empty[0]}" if empty else "a partition"
    return Wait(
        "held back by a partition",
        f"{which} of topic {name} has no row with a valid event time yet, and no window closes "
        "before every partition has passed it",
        f"headrace topics advance {name} moves all of its partitions",
    )


def _behind(record: Record | None, backlog: Backlog, *, running: bool) -> list[Wait]:
    start = "" if running else "headrace run MODULE:APP"
    waiting = f"{many(backlog.rows, 'row')} in {many(backlog.commits, 'commit')}"
    if record is None:
        return [Wait("never run", f"it has not run yet; backlog: {waiting}", start)]
    if not backlog.commits:
        return []
    if running:
        return [Wait("behind", f"it is behind by {waiting}")]
    return [Wait("not running", f"it is not running; backlog: {waiting}", start)]


def _held_back(topics: Mapping[str, TopicState | None]) -> list[Wait]:
    """The topic whose event time is furthest behind, if others are ahead of it."""
    frontiers = {name: state.frontier for name, state in topics.items() if state is not None}
    known = {name: moment for name, moment in frontiers.items() if moment is not None}
    if len(known) < 2 or len(set(known.values())) < 2:
        return []
    last, first = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return [
        Wait(
            "held back by a topic",
            f"topic {last} is at {when(known[last])} and holds back event time by "
            f"{span(known[first] - known[last])}: topic {first} is at {when(known[first])}",
            f"If {last} is idle and not slow, headrace topics alter {last} --set idle=30s advances "
            "its event time with the clock",
        )
    ]


def _open(panes: Panes, held: Held, frontier: int | None, idle: bool) -> list[Wait]:
    """The reason why the oldest open window waits."""
    final = panes.emitted_once
    delay, grace = micros(panes.delay), micros(panes.grace)
    end = held.oldest if final else held.fires
    if end is None or (final and held.closes is None):
        return []
    due = held.closes if final else end + delay
    assert due is not None
    missing = "not every topic has an event yet" if frontier is None else (
        f"{span(due - frontier)} of event time missing, the newest event is at {when(frontier)}"
    )  # fmt: skip
    fired = final and frontier is not None and end + delay <= frontier
    because = (
        f"its grace period of {span(grace)} is not over"
        if fired
        else "the watermark is before its end"
    )
    quiet = "" if idle else (
        "Newer events advance the watermark. For an idle topic, use its setting idle or headrace "
        "topics advance"
    )  # fmt: skip
    state = "is not final" if final else "has not fired"
    text = f"the window that ends at {when(end)} {state}, because {because}: {missing}"
    return [Wait("grace not over" if fired else "watermark before the window's end", text, quiet)]


def _idle(topics: Mapping[str, TopicState | None]) -> bool:
    """True if every topic advances its event time by itself."""
    return all(state is not None and state.topic.settings.idle for state in topics.values())


def _why_not(step: Step, filtered: int, late: int, dead: int) -> str:
    if dead >= max(filtered, late):
        return f"headrace consume {step.dead_letters} shows dead letters and their reasons"
    if late >= filtered:
        return f"headrace topics lateness {step.topics[0]} suggests a delay and a grace period"
    return "Check its filters: no row has passed them"
