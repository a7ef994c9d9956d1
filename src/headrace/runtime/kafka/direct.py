"""Which steps can read Kafka themselves, and what stands in the way of the others."""

from __future__ import annotations

from headrace.operators.remote_lookup.declare import Fetched
from headrace.pipeline.stream import Stream, sources
from headrace.pipeline.time import Session, Sliding
from headrace.plan.steps import Step


def why_not_direct(step: Step) -> str | None:
    """Why a step needs the commits of a log, which Kafka lacks; None if it does not."""
    made = (
        step.join,
        step.enriched,
        step.table_join,
        step.deduplicated,
        step.stateful,
        step.alerts,
    )
    if any(one is not None for one in made):
        return "what it keeps from batch to batch goes by commits"
    if _fetches(step.computed):
        return "rows are looked up elsewhere, once for each commit"
    rules = {source.topic.settings.frontier for source in sources(step.stream)}
    window = step.aggregation.window if step.aggregation is not None else None
    if "punctuation" in rules or len(rules) > 1:
        return "its topics do not all tell by their rows how far time is"
    if any(source.topic.settings.idle is not None for source in sources(step.stream)):
        return "its time goes on while a topic is idle"
    if isinstance(window, Sliding):
        return "a sliding window's rows are judged one by one, and Spark's watermark goes by panes"
    if isinstance(window, Session) and rules == {"arrival"}:
        return "a session is judged by the batch, and not by the arrival of its rows"
    return None


def _fetches(stream: Stream) -> bool:
    return isinstance(stream, Fetched) or any(map(_fetches, stream.upstream))
