"""Traces to OpenTelemetry, whose packages are the extra `telemetry`: imported only on demand."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from headrace.runtime.tracing import Span

_NANOSECONDS = 1_000
"""Nanoseconds in a microsecond."""


class OpenTelemetry:
    """Sends spans in the background, with the program's own provider if it has made one."""

    def __init__(self, exporter: str, environment: Mapping[str, str]) -> None:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            provider = TracerProvider(resource=_resource(environment))
            made = OTLPSpanExporter() if exporter == "otlp" else ConsoleSpanExporter()
            provider.add_span_processor(BatchSpanProcessor(made))
        self.provider = provider
        self._tracer = provider.get_tracer("headrace")

    def send(self, span: Span) -> None:
        """Send a span with all of its parts."""
        self._send(span, None)

    def _send(self, span: Span, parent: trace.Span | None) -> None:
        context = None if parent is None else trace.set_span_in_context(parent)
        made = self._tracer.start_span(
            span.name,
            context=context,
            start_time=span.start * _NANOSECONDS,
            attributes=dict(span.attributes),
        )
        for part in span.parts:
            self._send(part, made)
        made.end(end_time=span.end * _NANOSECONDS)


def _resource(environment: Mapping[str, str]) -> Resource:
    """The name of the service is `headrace`, unless the variables have another."""
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if named or environment.get("OTEL_SERVICE_NAME"):
        return Resource.create()
    return Resource.create({SERVICE_NAME: "headrace"})
