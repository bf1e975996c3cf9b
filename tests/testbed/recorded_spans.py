"""Spans of the test process, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bai_services import tracing
from bai_services.tracing_sdk import SdkTracer


class RecordedSpans:
    """The spans that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@contextmanager
def recording_spans() -> Iterator[RecordedSpans]:
    exporter = InMemorySpanExporter()
    tracing.start(SdkTracer({"service.name": "test"}, SimpleSpanProcessor(exporter)))
    try:
        yield RecordedSpans(exporter)
    finally:
        tracing.close()
