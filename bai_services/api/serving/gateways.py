"""`/gateway/routes`, `/gateway/reports`: routing tables for gateways, and their reports."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving import gateway_records
from bai_services.core.user_input import read_decimal, shown
from bai_services.manager.serving.routes import MAX_WAIT_SECONDS

from ..base import APIHandler, operation
from ..fields import ResponseModel
from .bodies import GatewayReport

_TAG = "gateways"


class ReplicaRoute(ResponseModel):
    id: str
    revision_id: str
    url: str
    secret: str
    is_draining: bool
    health_path: str
    health_status: int
    health_seconds: float
    protocol: str


class TokenRoute(ResponseModel):
    id: str
    digest: str
    networks: list[str]
    expires_at: float | None
    requests_per_minute: int | None
    max_concurrent: int | None


class EndpointRoute(ResponseModel):
    id: str
    name: str
    owner_id: str
    is_public: bool
    is_paused: bool
    weights: dict[str, int]
    replicas: list[ReplicaRoute]
    tokens: list[TokenRoute]
    health_path: str
    max_queue: int
    queue_seconds: int
    max_concurrent_per_replica: int
    request_seconds: int
    max_body_bytes: int
    prefix_characters: int
    protocol: str


class RoutingTable(ResponseModel):
    """``version`` changes with the content."""

    version: str
    endpoints: list[EndpointRoute]


class RoutesHandler(APIHandler):
    """Serves the long poll of a gateway."""

    is_timed = False

    _poll: asyncio.Task[gateway_records.RoutingTable | None] | None = None

    @operation(
        "Wait for another routing table; 204 if it has not changed (gateways only)",
        tag=_TAG,
        returns=RoutingTable,
        parameters={
            "version": "Version of the table that the gateway has.",
            "wait": f"Seconds to wait for a change, at most {MAX_WAIT_SECONDS:g}.",
        },
    )
    async def get(self) -> gateway_records.RoutingTable | None:
        wait = _wait_seconds(self.get_query_argument("wait", "0"))
        version = self.get_query_argument("version", "")
        routes = self.manager.serving.routes
        self._poll = asyncio.ensure_future(routes.wait(self.caller, version, wait))
        try:
            table = await self._poll
        except asyncio.CancelledError:
            if not self._poll.cancelled() or self.running_requests.is_ending:
                raise
            return None  # raised if the gateway has closed the connection
        if table is None:
            self.set_status(HTTPStatus.NO_CONTENT)
            await self.finish()
        return table

    def on_connection_close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()


class ReportsHandler(APIHandler):
    @operation(
        "Report requests and the state of replicas (gateways only)",
        tag=_TAG,
        body=GatewayReport,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, body: GatewayReport) -> None:
        await self.manager.serving.routes.report(self.caller, body.model_dump())


def _wait_seconds(text: str) -> float:
    number = read_decimal(text)
    if number is None or number > 3600:
        raise InvalidRequest(f"wait={shown(text)!r} must be a number of seconds", field="wait")
    return float(number)


ROUTES = [
    ("/gateway/routes", RoutesHandler),
    ("/gateway/reports", ReportsHandler),
]
