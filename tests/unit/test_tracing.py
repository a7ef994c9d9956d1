"""Traces of batches: off unless asked for, and each batch is one trace with its phases."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace.clock import to_micros
from headrace.errors import InvalidSetting, MissingExtra
from headrace.runtime.telemetry import OpenTelemetry
from headrace.runtime.tracing import Span, exporter_of, span_of_batch, traces_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEGAN = to_micros(NOON)
PROGRESS = {
    "batchId": 7,
    "timestamp": "2026-01-01T12:00:00.000Z",
    "durationMs": {
        "latestOffset": 5,
        "walCommit": 10,
        "getBatch": 1,
        "queryPlanning": 4,
        "addBatch": 100,
        "commitOffsets": 20,
        "triggerExecution": 150,
    },
}


def batch() -> Span:
    """A batch of 150 ms, which stored its results in the last 30 ms of computing."""
    stored = BEGAN + 90_000, BEGAN + 120_000
    return span_of_batch({"headrace.step": "hits", "headrace.rows": 40}, PROGRESS, stored)


@pytest.mark.parametrize(
    ("given", "exporter"),
    [
        ({}, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
    ],
)
def test_the_standard_variables_decide(given: dict[str, str], exporter: str | None) -> None:
    assert exporter_of(given) == exporter


@pytest.mark.parametrize(
    "given",
    [
        {"OTEL_TRACES_EXPORTER": "jaeger"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_what_cannot_be_sent_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        traces_of(given)


def test_without_a_receiver_nothing_of_opentelemetry_is_loaded() -> None:
    code = (
        "import sys, headrace, headrace.application.run, headrace.runtime.query\n"
        "from headrace.runtime.tracing import traces\n"
        "print(traces(), [name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None []\n"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name}", name="opentelemetry")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra) as refused:
        traces_of({"OTEL_TRACES_EXPORTER": "otlp"})
    assert "headrace[telemetry]" in refused.value.hint


def test_phases_follow_each_other_and_storing_is_inside_of_computing() -> None:
    found = batch()
    assert (found.start, found.end) == (BEGAN, BEGAN + 150_000)
    ends = [(part.name, part.end - BEGAN) for part in found.parts]
    assert ends == [
        ("find new rows", 5_000),
        ("write offsets", 15_000),
        ("plan", 20_000),
        ("compute and store", 120_000),
        ("commit", 140_000),
    ]
    assert [part.start for part in found.parts[1:]] == [part.end for part in found.parts[:-1]]
    (store,) = found.parts[3].parts
    assert found.parts[3].start <= store.start < store.end <= found.parts[3].end


def test_a_batch_is_one_trace() -> None:
    sent, memory = OpenTelemetry("console", {}), InMemorySpanExporter()
    sent.provider._active_span_processor._span_processors = ()
    sent.provider.add_span_processor(SimpleSpanProcessor(memory))
    sent.send(batch())
    sent.send(batch())
    spans = memory.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 2
    root = next(span for span in spans if span.parent is None)
    assert root.attributes == {"headrace.step": "hits", "headrace.rows": 40}
    assert (root.start_time, root.end_time) == (BEGAN * 1_000, (BEGAN + 150_000) * 1_000)
    inner = {
        span.name for span in spans if span.parent and span.parent.span_id == root.context.span_id
    }
    assert inner == {part.name for part in batch().parts}


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP receiver over HTTP, as collectors have."""
    found: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                found.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", found
        server.shutdown()


def test_a_receiver_of_otlp_gets_the_batch(
    receiver: tuple[str, list[ExportTraceServiceRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, found = receiver
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    sent = traces_of({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    assert isinstance(sent, OpenTelemetry)
    sent.send(batch())
    sent.provider.shutdown()
    (resource,) = (each for request in found for each in request.resource_spans)
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "headrace"
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in spans} == {"batch", "store", *(p.name for p in batch().parts)}
    root = next(span for span in spans if not span.parent_span_id)
    assert root.start_time_unix_nano == BEGAN * 1_000
