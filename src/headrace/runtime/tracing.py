"""Traces of batches: what they consist of, and whether anybody wants them.

OpenTelemetry's own variables decide, and its packages are loaded only if they ask for traces. A
batch is traced when it is over, from the times that are measured anyway.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from headrace.clock import MILLISECOND, to_micros
from headrace.errors import InvalidSetting, MissingExtra
from headrace.plan.batch import Payload, StepBatch
from headrace.plan.position import last_commit
from headrace.plan.steps import Step

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTERS = ("otlp", "console")
_PHASES = (
    ("find new rows", ("latestOffset",)),
    ("write offsets", ("walCommit",)),
    ("plan", ("getBatch", "queryPlanning")),
    ("compute and store", ("addBatch",)),
    ("commit", ("commitOffsets",)),
)
"""Phases of a batch of Spark in their order, and their names in its progress report."""

Value = str | int


@dataclass(frozen=True)
class Span:
    """A part of a batch, with its parts. Times are microseconds."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    parts: tuple[Span, ...] = ()


class Traces(Protocol):
    """The receiver of spans."""

    def send(self, span: Span) -> None:
        """Send a span with all of its parts, as a trace of its own. It never fails or waits."""


@functools.cache
def traces() -> Traces | None:
    """The receiver of this process's traces; None if the environment names none."""
    return traces_of(os.environ)


def traces_of(environment: Mapping[str, str]) -> Traces | None:
    """The receiver of traces that OpenTelemetry's variables name; None if they name none."""
    exporter = exporter_of(environment)
    if exporter is None:
        return None
    try:
        module = importlib.import_module("headrace.runtime.telemetry")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("opentelemetry"):
            raise
        raise MissingExtra(
            f"Traces need the package {error.name!r}, which is not installed",
            hint="pip install 'headrace[telemetry]', or unset the variables OTEL_*",
        ) from None
    found: Traces = module.OpenTelemetry(exporter, environment)
    return found


def exporter_of(environment: Mapping[str, str]) -> str | None:
    """The exporter that the variables choose: `otlp` or `console`; None for none."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    endpoint = any(environment.get(name) for name in _ENDPOINTS)
    chosen = environment.get("OTEL_TRACES_EXPORTER") or ("otlp" if endpoint else "none")
    if chosen == "none":
        return None
    if chosen not in _EXPORTERS:
        raise InvalidSetting(
            f"OTEL_TRACES_EXPORTER={chosen} is not supported",
            hint=f"Use one of {', '.join(_EXPORTERS)}, or none",
        )
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if chosen == "otlp" and protocol not in (None, "", "http/protobuf"):
        raise InvalidSetting(
            f"Traces cannot be sent with the protocol {protocol}",
            hint="Use OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and the receiver's HTTP port, "
            "which is 4318 as a rule",
        )
    return chosen


def span_of_round(
    step: Step, batch: StepBatch[Payload], computed: tuple[int, int], stored: tuple[int, int]
) -> Span:
    """The span of a round of a step that keeps its state in the store."""
    attributes: dict[str, Value] = {
        "headrace.app": step.app,
        "headrace.step": step.name,
        "headrace.commit": last_commit(batch.end),
        "headrace.rows": batch.law.rows,
        "headrace.late": batch.law.late,
        "headrace.dead": batch.law.dead,
        "headrace.results": batch.payload.results,
    }
    parts = (Span("compute", *computed), Span("store", *stored))
    return Span("batch", computed[0], stored[1], attributes, parts)


def span_of_batch(
    attributes: Mapping[str, Value], progress: Mapping[str, Any], stored: tuple[int, int]
) -> Span:
    """The span of a batch, from Spark's report on it and the times of storing its results.

    Spark reports how long each phase took, and they follow each other. Storing is a part of
    the phase that computes.
    """
    began = to_micros(datetime.fromisoformat(progress["timestamp"]))
    took = progress.get("durationMs", {})
    at, parts = began, []
    for name, phases in _PHASES:
        length = sum(int(took.get(phase, 0)) for phase in phases) * MILLISECOND
        inner: tuple[Span, ...] = ()
        if "addBatch" in phases:
            inner = (Span("store", *stored),)
        parts.append(Span(name, at, at + length, parts=inner))
        at += length
    end = max(at, began + int(took.get("triggerExecution", 0)) * MILLISECOND)
    return Span("batch", began, end, attributes, tuple(parts))
