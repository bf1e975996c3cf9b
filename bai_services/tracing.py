"""Optional traces (OpenTelemetry): spans of this process, and the trace context between processes.

Tracing is off unless ``BAI_TRACING`` is set. Then each function costs one check, and OpenTelemetry
is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol

from bai_services.span_content import Attribute, Span

HEADER = "traceparent"
VARIABLE = "BAI_TRACING"
_SWITCH = {"": False, "0": False, "1": True}

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class Tracer(Protocol):
    """Interface of ``tracing_sdk.SdkTracer``."""

    def span(
        self,
        name: str,
        *,
        parent: str | None,
        attributes: Mapping[str, Attribute],
        hidden: tuple[str, ...],
        started_at: datetime | None,
        is_server: bool,
    ) -> AbstractContextManager[Span]: ...

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
    ) -> None: ...

    def traceparent(self) -> str | None: ...

    def close(self) -> None: ...


_OFF = Span()
_NO_SPAN = nullcontext(_OFF)
_tracer: Tracer | None = None


def is_on() -> bool:
    return _tracer is not None


def set_up(service: str, environ: Mapping[str, str], instance: str = "") -> None:
    """Start tracing in this process if the environment requests it.

    The spans contain ``service`` and, if several instances of it can run, the ``instance``.

    Raises
    ------
    SystemExit
        If a variable is invalid, or OpenTelemetry is not installed.
    """
    text = environ.get(VARIABLE, "").strip()
    if text not in _SWITCH:
        raise SystemExit(f"{VARIABLE} must be 0 or 1, not {text[:20]!r}")
    if not _SWITCH[text] or _tracer is not None:
        return
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    try:
        # Imported only here: the SDK is optional, and its import takes 0.2 s.
        from bai_services.tracing_sdk import SdkTracer
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{VARIABLE}=1 needs OpenTelemetry: pip install 'bai-hub[otel]' ({error})"
        ) from None
    start(SdkTracer.of(service, environ, instance))


def start(tracer: Tracer) -> None:
    """Record the spans of this process with a tracer."""
    global _tracer
    _tracer = tracer


def close() -> None:
    """Send the remaining spans for a limited time, and stop tracing."""
    global _tracer
    if _tracer is not None:
        _tracer.close()
        _tracer = None


def span(
    name: str,
    *,
    parent: str | None = None,
    attributes: Mapping[str, Attribute] | None = None,
    hidden: tuple[str, ...] = (),
    started_at: datetime | None = None,
    is_server: bool = False,
) -> AbstractContextManager[Span]:
    """Return a context manager that records its block as a span.

    A ``BaiError`` that leaves the block is the reason of a failure; the text of other exceptions is
    not recorded.

    Parameters
    ----------
    parent
        The parent of the span, as ``traceparent``. Default: the current span.
    hidden
        Texts, such as names of users, that are removed from the reason of a failure.
    is_server
        The span is the processing of a request.
    """
    if _tracer is None:
        return _NO_SPAN
    return _tracer.span(
        name,
        parent=parent,
        attributes=attributes or {},
        hidden=hidden,
        started_at=started_at,
        is_server=is_server,
    )


def step(name: str) -> AbstractContextManager[Span]:
    """Return a context manager for a step of the current span; without a span, nothing happens."""
    if _tracer is None or _tracer.traceparent() is None:
        return _NO_SPAN
    return span(name)


def record(
    name: str,
    *,
    parent: str | None,
    started_at: datetime,
    ended_at: datetime,
    attributes: Mapping[str, Attribute] | None = None,
    hidden: tuple[str, ...] = (),
    error: str | None = None,
    span_id: str | None = None,
) -> None:
    """Record a span that has ended; ``error`` is the reason of its failure.

    ``span_id`` (16 hexadecimal digits): the id of the span, if other spans already refer to it.
    """
    if _tracer is not None:
        _tracer.record(
            name,
            parent=parent,
            started_at=started_at,
            ended_at=ended_at,
            attributes=attributes or {},
            hidden=hidden,
            error=error,
            span_id=span_id,
        )


def traceparent() -> str | None:
    """Return the current span in the format of the W3C header, None if there is none."""
    return None if _tracer is None else _tracer.traceparent()


def inject(headers: MutableMapping[str, str]) -> None:
    """Add the current span to the headers of a request to another component."""
    if _tracer is not None and (current := _tracer.traceparent()) is not None:
        headers[HEADER] = current


def with_span_id(parent: str, span_id: str) -> str:
    """Return ``parent`` with another span id in the same trace."""
    version, trace, _, flags = parent.split("-")
    return f"{version}-{trace}-{span_id}-{flags}"


def valid(parent: object) -> str | None:
    """Return a ``traceparent`` from another process if it is valid, else None."""
    match = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return match[0]
