"""`/metrics`, the access log, and the metrics of API requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tornado.web import RequestHandler

from bai_services.core.accounts.roles import Caller, Role
from bai_services.manager.metrics import Metrics
from bai_services.manager.metrics_endpoint import CONTENT_TYPE

from .base import APIHandler, operation

log = logging.getLogger(__name__)


class MetricsHandler(APIHandler):
    @operation("Read the metrics in Prometheus text format", tag="health")
    async def get(self) -> None:
        text = await self.manager.metrics_endpoint.text(self.caller)
        self.set_header("Content-Type", CONTENT_TYPE)
        await self.finish(text)


class AccessLog:
    """Counts and logs each request; tornado calls it after the response.

    The query string is not logged, because it may contain search terms of users.
    """

    def __init__(self, metrics: Metrics, paths: Mapping[type[RequestHandler], str]) -> None:
        """``paths``: the route of each handler."""
        self._metrics = metrics
        self._paths = paths

    def __call__(self, handler: RequestHandler) -> None:
        request = handler.request
        status = handler.get_status()
        route = self._paths.get(type(handler), "other")
        method = request.method or ""
        if method not in RequestHandler.SUPPORTED_METHODS:
            # Clients can send arbitrary methods, and each value of a label needs memory.
            method = "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        if not isinstance(handler, APIHandler) or handler.is_timed:
            self._metrics.request_seconds.labels(method, route).observe(request.request_time())
        # ``caller`` is a method in page handlers, and an attribute in API handlers.
        attribute = getattr(handler, "caller", None)
        caller = attribute if isinstance(attribute, Caller) else None
        caller_name = "-" if caller is None else caller.username or caller.role
        log.log(
            _level_of(status, caller),
            "%s %s %d %.0f ms %s",
            method,
            request.path,
            status,
            request.request_time() * 1000,
            caller_name,
        )


def _level_of(status: int, caller: Caller | None) -> int:
    if status >= 500:
        return logging.WARNING
    # Do not log successful requests of the Hub and of agents, because there are too many; the
    # manager's services log the important actions.
    is_component = caller is not None and caller.role in (Role.HUB, Role.AGENT, Role.SCRAPER)
    return logging.DEBUG if is_component and status < 400 else logging.INFO


ROUTES = [("/metrics", MetricsHandler)]
