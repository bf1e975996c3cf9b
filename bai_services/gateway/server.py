"""The gateway server: connections of clients, time limits, and drained replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from bai_services.trusted_proxies import TrustedProxies

from . import metrics
from .client_connection import ClientConnection
from .heads import Refusal, response
from .limits import MAX_CLIENT_CONNECTIONS, SWEEP_SECONDS
from .measures import Measures
from .routes import Routes

log = logging.getLogger("bai_services.gateway")

# Maximum number of queued connections of a listening socket.
BACKLOG = 2048


@dataclass
class GatewayServer:
    """Serves the endpoints of ``routes``."""

    routes: Routes
    measures: Measures = field(default_factory=Measures)
    prefix: bytes = b"/services/bai-serve"
    domain: bytes = b""
    metrics_token: str = field(default="", repr=False)
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    max_connections: int = MAX_CLIENT_CONNECTIONS
    max_owner_requests: int = MAX_CLIENT_CONNECTIONS // 2
    running_requests: int = 0
    connections: set[ClientConnection] = field(default_factory=set)
    idle: dict[ClientConnection, None] = field(default_factory=dict)
    on_drained: Callable[[], None] = lambda: None
    on_waiting: Callable[[], None] = lambda: None
    # Whether all connections come from HAProxy, which sends the client's address in a header.
    is_behind_haproxy: bool = False
    _server: asyncio.Server | None = None
    _port: int = 0
    _sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port of the clients."""
        return self._port

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(self), host, port, backlog=BACKLOG
        )
        self._port = int(self._server.sockets[0].getsockname()[1])
        self._sweeper = asyncio.create_task(self._sweep_all())

    async def start_behind(self, socket: Path, port: int) -> None:
        """Accept connections of HAProxy, which listens on ``port`` for clients."""
        self.is_behind_haproxy, self._port = True, port
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: ClientConnection(self), str(socket), backlog=BACKLOG
        )
        self._sweeper = asyncio.create_task(self._sweep_all())

    async def stop(self, grace_seconds: float = 0) -> None:
        """Stop accepting connections, wait for running requests, and close all connections."""
        if self._server is not None:
            self._server.close()
        deadline = time.monotonic() + grace_seconds
        # Iterate over a list, because closed connections are removed from the set.
        while any([connection.drain() for connection in tuple(self.connections)]):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.05)
        for connection in tuple(self.connections):
            connection.abort()
        for endpoint in self.routes.by_name.values():
            for replica in endpoint.replicas.values():
                replica.close_idle()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def client_address(self, peer: str, forwarded: str) -> str:
        return self.proxies.client_address(peer, forwarded)

    def health(self) -> dict[str, object]:
        status = "ok" if self.routes.is_known else "waiting for the manager"
        return {"status": status, "endpoints": len(self.routes.by_name)}

    def metrics(self, authorization: bytes) -> bytes:
        """Return the response with the metrics for Prometheus."""
        if not metrics.may_read(authorization, self.metrics_token):
            refusal = Refusal(
                HTTPStatus.UNAUTHORIZED, "not-signed-in", "send the token of Prometheus"
            )
            return refusal.response(closes=False)
        endpoints = list(self.routes.by_name.values())
        totals = self.measures.totals_of(endpoint.route.id for endpoint in endpoints)
        return response(metrics.text(endpoints, totals).encode(), metrics.CONTENT_TYPE)

    def drained(self) -> None:
        self.on_drained()

    def waits_for_replica(self) -> None:
        """Send a report soon, because a request waits for an endpoint without replicas."""
        self.on_waiting()

    def sweep(self, now: float) -> None:
        """Apply all time limits."""
        for connection in tuple(self.connections):
            connection.sweep(now)
        for endpoint in self.routes.by_name.values():
            endpoint.sweep(now)
            for replica in endpoint.replicas.values():
                for idle in [c for c in replica.idle if not c.is_reusable(now)]:
                    replica.idle.remove(idle)
                    idle.close()

    async def _sweep_all(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.sweep(time.monotonic())
            except Exception:
                # Continue, because without this loop no time limit would be enforced.
                log.exception("time limits could not be applied")
