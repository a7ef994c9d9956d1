"""The end of a stream: no more rows will come, so every window can be closed.

drain(app)
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.application.run import StepProgress, run
from headrace.clock import micros, to_datetime
from headrace.log import DEFAULT_LOG, Capability, Log, open_log
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.plan.steps import steps_of
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
    """Run an application until all of its windows are final; returns what became of all rows.

    Rows that its topics get later for these windows are late: the time of the topics has gone on.
    """
    if not isinstance(log, Log):
        with open_log(log or app.log or DEFAULT_LOG) as opened:
            return drain(app, opened, spark=spark, settings=settings)
    log.require(Capability.FRONTIERS)
    run(app, log, spark=spark, settings=settings)
    close_windows(app, log)
    return run(app, log, spark=spark, settings=settings)


def close_windows(app: App, log: Log) -> dict[str, int]:
    """Move the topics that an application reads on, past the end of all windows it has by now.

    Returns to where, by topic. What is kept forever does not end, and moves nothing.
    """
    moments: dict[str, int] = {}
    with open_views(log.home, app=app.name) as views:
        ends = views.last_ends(app.name)
    for step in steps_of(app):
        wait = operator_of(step.stream).final_after(step.stream)
        if wait is None or step.name not in ends:
            continue
        closed = ends[step.name] + micros(wait)
        for topic in step.topics:
            moments[topic] = max(closed, moments.get(topic, closed))
    for topic, moment in moments.items():
        log.advance(topic, to_datetime(moment), ahead=True)
    return moments
