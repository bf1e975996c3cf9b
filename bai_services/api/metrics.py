"""`/metrics`, and the counting of requests."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tornado.web import RequestHandler

from bai_services.core.accounts.roles import Caller, Role
from bai_services.manager.metrics import CONTENT_TYPE, Metrics

from .base import APIHandler, operation
from .openapi import path_of

log = logging.getLogger(__name__)


class MetricsHandler(APIHandler):
    @operation("Read counters in Prometheus' text format", tag="health")
    async def get(self) -> None:
        text = await self.manager.monitoring.text(self.caller)
        self.set_header("Content-Type", CONTENT_TYPE)
        await self.finish(text)


class AccessLog:
    """Counts and logs each request; called by tornado after the answer.

    The query string is not logged, because it may contain what users search for.
    """

    def __init__(
        self, metrics: Metrics, routes: Iterable[tuple[str, type[RequestHandler]]]
    ) -> None:
        self._metrics = metrics
        self._paths = {handler: path_of(pattern) for pattern, handler in routes}

    def __call__(self, handler: RequestHandler) -> None:
        request = handler.request
        status = handler.get_status()
        route = self._paths.get(type(handler), "other")
        method = request.method or ""
        self._metrics.requests.labels(method, route, str(status)).inc()
        is_waiting = "wait" in request.query_arguments or route == "/events"
        if not is_waiting:
            self._metrics.request_seconds.labels(method, route).observe(request.request_time())
        # For pages, `caller` is a method.
        found = getattr(handler, "caller", None)
        caller = found if isinstance(found, Caller) else None
        who = "-" if caller is None else caller.username or caller.role
        log.log(
            _level_of(status, caller),
            "%s %s %d %.0f ms %s",
            method,
            request.path,
            status,
            request.request_time() * 1000,
            who,
        )


def _level_of(status: int, caller: Caller | None) -> int:
    if status >= 500:
        return logging.WARNING
    # Services send requests all the time; the code that handles them logs what matters.
    is_part = caller is not None and caller.role in (Role.HUB, Role.AGENT)
    return logging.DEBUG if is_part and status < 400 else logging.INFO


ROUTES = [("/metrics", MetricsHandler)]
