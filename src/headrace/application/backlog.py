"""The rows that an application has yet to read, counted without Spark."""

from __future__ import annotations

from headrace.errors import NotALog
from headrace.log import Capability, Log, open_log
from headrace.pipeline.app import App
from headrace.plan.position import Positions, beginning, lag_of
from headrace.plan.steps import Step, steps_of, topics_of
from headrace.store.location import database_of
from headrace.store.sqlite.stored import steps_in


def backlog(app: App, log: str, *, fresh: bool = False) -> int | None:
    """The rows that the furthest step behind has yet to read, all of them if it starts `fresh`.

    None on a log where counting them takes long: a broker's.
    """
    try:
        with open_log(log, create=False) as there:
            if Capability.NUMBERED_APPENDS not in there.capabilities:
                return None
            stored = {} if fresh else steps_in(database_of(there.home, app.name))
            reached = {name: step.reached for name, step in stored.items()}
            return max(_behind(there, step, reached.get(step.name, {})) for step in steps_of(app))
    except NotALog:
        return 0


def _behind(log: Log, step: Step, reached: Positions) -> int:
    """The rows after a position, and all of the topics that it does not name."""
    there = {state.name for state in log.topics()} & {topic.name for topic in topics_of(step)}
    return lag_of(log, {name: reached.get(name) or beginning(log, name) for name in there})
