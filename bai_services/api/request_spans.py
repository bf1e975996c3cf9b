"""Spans of API requests."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from tornado.web import RequestHandler

from bai_services import tracing
from bai_services.core.accounts.roles import Caller, Role
from bai_services.span_content import Span

# Setting of the application: the route of each handler, such as ``/sessions/{key}``.
ROUTES_SETTING = "routes_of_handlers"
ANONYMOUS = "anonymous"
# Components repeat most of their requests at intervals. These requests have a span only if they
# belong to a trace. Other callers cannot choose the trace of their requests.
_COMPONENTS = frozenset({Role.HUB, Role.AGENT, Role.GATEWAY, Role.SCRAPER})


def span_of(handler: RequestHandler, caller: Caller | None) -> AbstractContextManager[Span]:
    """Return a context manager for the span of a request; it records neither path nor query."""
    role = ANONYMOUS if caller is None else caller.role
    parent = None
    if role in _COMPONENTS:
        parent = tracing.valid(handler.request.headers.get(tracing.HEADER))
        if parent is None:
            return nullcontext(Span())
    route = handler.settings.get(ROUTES_SETTING, {}).get(type(handler), "other")
    method = handler.request.method or ""
    return tracing.span(
        f"{method} {route}",
        parent=parent,
        attributes={"http.request.method": method, "http.route": route, "bai.role": str(role)},
        started_at=datetime.now(UTC) - timedelta(seconds=handler.request.request_time()),
        is_server=True,
    )
