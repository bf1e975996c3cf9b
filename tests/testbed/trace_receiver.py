"""A receiver of OTLP over HTTP, which decodes the spans with the official protocol buffers."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class ReceivedSpan:
    """A span; ids are hexadecimal, ``parent`` is "" for the root of a trace."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: Mapping[str, Any]
    starts_at: int
    ends_at: int
    is_error: bool
    message: str


class TraceReceiver:
    """Stores the spans of all requests.

    While ``may_respond`` is not set, requests get no response; ``waiting`` is set when one waits.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.may_respond = threading.Event()
        self.may_respond.set()
        self.waiting = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that switch tracing on, with this receiver."""
        return {
            "BAI_TRACING": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }

    def spans(self) -> list[ReceivedSpan]:
        return [span for body in list(self.bodies) for span in _spans_of(body)]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.may_respond.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving_traces() -> Iterator[TraceReceiver]:
    receiver = TraceReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


def _handler_of(receiver: TraceReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if not receiver.may_respond.is_set():
                receiver.waiting.set()
                receiver.may_respond.wait()
            assert self.path == "/v1/traces"
            receiver.bodies.append(body)
            content = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _spans_of(body: bytes) -> Iterator[ReceivedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    service=resource["service.name"],
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    attributes=_attributes(span.attributes),
                    starts_at=span.start_time_unix_nano,
                    ends_at=span.end_time_unix_nano,
                    is_error=span.status.code == Status.STATUS_CODE_ERROR,
                    message=span.status.message,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
