"""Spans with the SDK of OpenTelemetry, which are sent with OTLP over HTTP.

Import this module only if tracing is on (``bai_services.tracing``).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace.propagation import tracecontext

from bai_services import __version__, span_content
from bai_services.span_content import Attribute, Span

# Maximum time for which the end of a process waits until its last spans are sent.
CLOSE_SECONDS = 2.0
HEADER = "traceparent"
LOG_INTERVAL_SECONDS = 60.0
PROTOCOL = "http/protobuf"
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_FORMAT = tracecontext.TraceContextTextMapPropagator()


class SdkTracer:
    """The spans of one process; a full queue or a failed export loses spans and nothing else."""

    def __init__(self, facts: Mapping[str, str], processor: SpanProcessor) -> None:
        """``facts`` describe this process; ``processor`` gets the spans that have ended."""
        self._ids = _Ids()
        # The process itself stops the export, because the SDK would wait up to 30 s at the exit.
        self._provider = TracerProvider(
            resource=Resource.create(dict(facts)), id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("bai-hub", __version__)

    @classmethod
    def of(cls, service: str, environ: Mapping[str, str], instance: str = "") -> SdkTracer:
        """Return the tracer of a process; the SDK reads its own variables (``OTEL_…``).

        Raises
        ------
        SystemExit
            If a variable is invalid.
        """
        for variable in _PROTOCOL_VARIABLES:
            if environ.get(variable, PROTOCOL).strip() != PROTOCOL:
                raise SystemExit(f"{variable} must be {PROTOCOL}: bai-hub sends traces over HTTP")
        logging.getLogger(_EXPORTER_LOG).addFilter(_RateLimit(LOG_INTERVAL_SECONDS))
        facts = {
            "service.name": service,
            "service.namespace": "bai-hub",
            "service.version": __version__,
        }
        if instance:
            facts["service.instance.id"] = instance
        try:
            tracer = cls(facts, BatchSpanProcessor(OTLPSpanExporter()))
        except ValueError as error:
            raise SystemExit(f"a variable of OpenTelemetry (OTEL_…) is invalid: {error}") from None
        atexit.register(tracer.close)
        return tracer

    def close(self) -> None:
        """Send the remaining spans for at most ``CLOSE_SECONDS``; idempotent."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: str | None,
        attributes: Mapping[str, Attribute],
        hidden: tuple[str, ...],
        started_at: datetime | None,
        is_server: bool,
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=_context_of(parent),
            kind=trace.SpanKind.SERVER if is_server else trace.SpanKind.INTERNAL,
            attributes=span_content.checked(attributes),
            start_time=None if started_at is None else _nanoseconds(started_at),
            # The SDK would record texts and stack traces of all exceptions.
            record_exception=False,
            set_status_on_exception=False,
        ) as inner:
            span = SdkSpan(inner, hidden)
            try:
                yield span
            except asyncio.CancelledError:
                span.set({"bai.cancelled": True})
                raise
            except Exception as error:
                span.fail(span_content.reason_of(error), span_content.code_of(error))
                raise

    def record(
        self,
        name: str,
        *,
        parent: str | None,
        started_at: datetime,
        ended_at: datetime,
        attributes: Mapping[str, Attribute],
        hidden: tuple[str, ...],
        error: str | None,
        span_id: str | None,
    ) -> None:
        with self._ids.next_span_id(span_id):
            span = self._tracer.start_span(
                name,
                context=_context_of(parent) or Context(),
                attributes=span_content.checked(attributes),
                start_time=_nanoseconds(started_at),
            )
        if error is not None:
            SdkSpan(span, hidden).fail(error)
        span.end(max(_nanoseconds(started_at), _nanoseconds(ended_at)))

    def traceparent(self) -> str | None:
        headers: dict[str, str] = {}
        _FORMAT.inject(headers)
        return headers.get(HEADER)


class SdkSpan(Span):
    """A span of the SDK."""

    def __init__(self, span: trace.Span, hidden: tuple[str, ...]) -> None:
        self._span = span
        self._hidden = hidden
        self._has_failed = False

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        for name, value in span_content.checked(attributes).items():
            self._span.set_attribute(name, value)

    def fail(self, reason: str, code: str = "") -> None:
        if self._has_failed:
            return  # keep the first reason, which is the cause
        self._has_failed = True
        text = span_content.redacted(reason, self._hidden)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, text))
        if code:
            self.set({"error.type": code})

    def reject(self, code: str) -> None:
        self._has_failed = True
        self.set({"error.type": code})


class _Ids(RandomIdGenerator):
    """Random ids, except for spans whose id is already known to other processes."""

    def __init__(self) -> None:
        self._next: ContextVar[int | None] = ContextVar("next span id", default=None)

    @contextmanager
    def next_span_id(self, span_id: str | None) -> Iterator[None]:
        token = self._next.set(None if span_id is None else int(span_id, 16))
        try:
            yield
        finally:
            self._next.reset(token)

    def generate_span_id(self) -> int:
        return self._next.get() or super().generate_span_id()


class _RateLimit(logging.Filter):
    """Passes one log record per interval, because each batch logs several records while the
    receiver is down.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def _context_of(parent: str | None) -> Context | None:
    """Return the context of a parent; None is the current context."""
    return None if parent is None else _FORMAT.extract({HEADER: parent}, Context())


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
