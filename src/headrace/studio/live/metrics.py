"""Metrics in Prometheus' text format, with the names that dashboards know."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from headrace.clock import SECOND
from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.log.home import folder_of
from headrace.studio.live.pipeline_states import PipelineNow, Watch, Watching

router = APIRouter()

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OUTCOMES = ("counted", "late", "dead", "filtered", "tombstones", "duplicates", "compacted")


@dataclass(frozen=True)
class Metric:
    """A metric: its name, kind and meaning."""

    name: str
    kind: str
    meaning: str


UP = Metric("headrace_up", "gauge", "1 if the log can be read.")
TOPIC_RECORDS = Metric("headrace_topic_records", "gauge", "Records in a partition.")
TOPIC_END = Metric("headrace_topic_end_offset", "counter", "Next offset of a partition.")
TOPIC_BYTES = Metric("headrace_topic_bytes", "gauge", "Size of a partition.")
DISK_FREE = Metric("headrace_disk_free_bytes", "gauge", "Free space where the log is stored.")
GROUP_LAG = Metric("kafka_consumergroup_lag", "gauge", "Records that a group has not read yet.")
RUNNING = Metric("headrace_app_running", "gauge", "1 if an application runs on this machine.")
ROWS = Metric("headrace_rows_total", "counter", "Rows that a step has processed, by outcome.")
READ = Metric("headrace_rows_read_total", "counter", "Rows that a step has read.")
CONSERVED = Metric("headrace_rows_conserved", "gauge", "1 if a step accounts for every row.")
LAG = Metric("headrace_step_lag_rows", "gauge", "Rows in the log that a step has not stored yet.")
WATERMARK = Metric("headrace_watermark_seconds", "gauge", "Watermark of a step, since 1970.")
FRONTIER = Metric("headrace_frontier_seconds", "gauge", "Newest event time of a step, since 1970.")
BATCHES = Metric("headrace_batch_seconds", "gauge", "Duration of a step's last batch.")
STATE_ROWS = Metric("headrace_state_rows", "gauge", "Rows of state after a step's last batch.")
STATE_BYTES = Metric("headrace_state_bytes", "gauge", "Bytes of state after a step's last batch.")

METRICS = (
    UP, TOPIC_RECORDS, TOPIC_END, TOPIC_BYTES, DISK_FREE, GROUP_LAG, RUNNING, ROWS, READ,
    CONSERVED, LAG, WATERMARK, FRONTIER, BATCHES, STATE_ROWS, STATE_BYTES,
)  # fmt: skip
"""All metrics, in the order in which they are written."""

Sample = tuple[Metric, dict[str, str], float]


@router.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
def metrics(watch: Watching) -> PlainTextResponse:
    """The log, its groups and its pipelines in Prometheus' text format."""
    try:
        found = list(_samples(watch))
    except HeadraceError:
        found = [(UP, {}, 0)]
    return PlainTextResponse(text_of(found), media_type=_TYPE)


def text_of(samples: Iterable[Sample]) -> str:
    """Samples as Prometheus reads them. A metric without samples keeps its heading."""
    by_metric: dict[str, list[str]] = {}
    for metric, labels, value in samples:
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        line = f"{metric.name}{{{inside}}} " if labels else f"{metric.name} "
        by_metric.setdefault(metric.name, []).append(line + _number(value))
    lines = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
        lines += by_metric.get(metric.name, [])
    return "\n".join(lines) + "\n"


def _samples(watch: Watch) -> Iterator[Sample]:
    log = watch.handles.log
    log.check_there()
    yield UP, {}, 1
    yield from _log(log)
    for now in watch.all():
        yield from _pipeline(now)


def _log(log: Log) -> Iterator[Sample]:
    for topic in log.topics():
        for state in log.topic(topic.name).partitions:
            labels = {"topic": topic.name, "partition": str(state.partition)}
            yield TOPIC_RECORDS, labels, state.end - state.first
            yield TOPIC_END, labels, state.end
            if state.bytes is not None:
                yield TOPIC_BYTES, labels, state.bytes
    home = folder_of(log.home)
    if home.exists():
        yield DISK_FREE, {}, shutil.disk_usage(home).free
    for group in log.groups():
        for lag in log.group(group).lags:
            labels = {"consumergroup": group, "topic": lag.topic, "partition": str(lag.partition)}
            yield GROUP_LAG, labels, lag.records


def _pipeline(now: PipelineNow) -> Iterator[Sample]:
    yield RUNNING, {"app": now.app}, int(now.state.word in ("running", "draining", "stopping"))
    for step in now.steps:
        labels = {"app": now.app, "step": step.name}
        for outcome in _OUTCOMES:
            yield ROWS, {**labels, "outcome": outcome}, getattr(step.law, outcome)
        yield READ, labels, step.law.rows
        yield CONSERVED, labels, int(step.law.holds)
        yield LAG, labels, step.lag
        for metric, moment in ((WATERMARK, step.watermark), (FRONTIER, step.frontier)):
            if moment is not None:
                yield metric, labels, moment / SECOND
        if step.timings:
            last = step.timings[-1]
            yield BATCHES, labels, last.total / 1_000
            yield STATE_ROWS, labels, last.state_rows
            yield STATE_BYTES, labels, last.state_bytes


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"
