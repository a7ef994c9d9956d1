"""Drain an application: no more rows will come, so close every window.

drain(app)
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from headrace.application.chains import stages_of
from headrace.application.run import StepProgress, run
from headrace.clock import micros, to_datetime
from headrace.log import DEFAULT_LOG, Log, open_log
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.plan.steps import Step, steps_of
from headrace.runtime.session import SparkSettings
from headrace.store import open_views

__all__ = ["close_windows", "drain"]


def drain(
    app: App,
    log: str | Log | None = None,
    *,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
) -> list[StepProgress]:
    """Run an application until all of its windows are final; return the progress of each step.

    Rows that arrive later for these windows are late.
    """
    if not isinstance(log, Log):
        with open_log(log or app.log or DEFAULT_LOG) as opened:
            return drain(app, opened, spark=spark, settings=settings)
    progress = run(app, log, spark=spark, settings=settings)
    # The last rows of a step may open windows of the next, so they are closed one after the other.
    for steps in stages_of(steps_of(app)):
        if close_windows(app, log, steps):
            progress = run(app, log, spark=spark, settings=settings)
    return progress


def close_windows(app: App, log: Log, steps: Sequence[Step] | None = None) -> dict[str, int]:
    """Advance the frontiers of an application's topics past the end of all open windows of steps.

    Return the new frontiers by topic. A window that never ends advances nothing.
    """
    moments: dict[str, int] = {}
    with open_views(log.home, app=app.name) as views:
        ends = views.last_ends(app.name)
    for step in steps_of(app) if steps is None else steps:
        wait = operator_of(step.stream).final_after(step.stream)
        if wait is None or step.name not in ends:
            continue
        closed = ends[step.name] + micros(wait)
        for topic in step.topics:
            moments[topic] = max(closed, moments.get(topic, closed))
    for topic, moment in moments.items():
        log.advance(topic, to_datetime(moment), ahead=True)
    return moments
