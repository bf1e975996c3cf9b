"""Health checks of all replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from bai_services import grpc_health
from bai_services.core.serving.gateway_records import Protocol

from .routes import Endpoint, Replica, Routes

log = logging.getLogger("bai_services.gateway")

# Short interval for replicas that are not ready: requests may wait for them.
UNREADY_SECONDS = 0.25
READY_SECONDS = 5.0
# Time limit of a check whose revision sets none, and of its connection.
TIMEOUT_SECONDS = 4.0
# Consecutive failures after which a replica gets no requests, and is reported as failed.
MAX_FAILURES = 3


class HealthChecks:
    """Sets `Replica.is_ready`.

    ``on_failed`` is called when a replica has failed, ``on_ready`` when one has become ready.
    """

    def __init__(
        self, routes: Routes, on_failed: Callable[[], None], on_ready: Callable[[], None]
    ) -> None:
        self._routes = routes
        self._on_failed = on_failed
        self._on_ready = on_ready
        self._session: ClientSession | None = None
        self._wake = asyncio.Event()
        self._running: dict[Replica, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Check new replicas now."""
        self._wake.set()

    async def run(self) -> None:
        # The number of concurrent checks is not limited: each replica has at most one check, and
        # with a limit, unresponsive replicas could delay the checks of other endpoints.
        connector = TCPConnector(limit=0, force_close=True)
        async with ClientSession(connector=connector, cookie_jar=DummyCookieJar()) as session:
            self._session = session
            try:
                while True:
                    self._start_due(time.monotonic())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(UNREADY_SECONDS):
                            await self._wake.wait()
                    self._wake.clear()
            finally:
                tasks = tuple(self._running.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def failed(self) -> Iterator[Replica]:
        for endpoint in self._routes.by_name.values():
            for replica in endpoint.replicas.values():
                if replica.failures >= MAX_FAILURES:
                    yield replica

    def _start_due(self, now: float) -> None:
        for endpoint in self._routes.by_name.values():
            for replica in endpoint.replicas.values():
                pause = READY_SECONDS if replica.is_ready else UNREADY_SECONDS
                if replica in self._running or now - replica.probed_at < pause:
                    continue
                replica.probed_at = now
                task = asyncio.create_task(self._check(endpoint, replica))
                self._running[replica] = task
                task.add_done_callback(partial(self._checked, replica))

    def _checked(self, replica: Replica, _: asyncio.Task[None]) -> None:
        del self._running[replica]

    async def _check(self, endpoint: Endpoint, replica: Replica) -> None:
        if await self._is_healthy(replica, endpoint):
            replica.failures = 0
            if not replica.is_ready:
                replica.is_ready = True
                endpoint.dispatch()
                self._on_ready()
            return
        replica.failures += 1
        if replica.failures == MAX_FAILURES:
            replica.is_ready = False
            log.warning("replica %s fails its health check", replica.id)
            self._on_failed()

    async def _is_healthy(self, replica: Replica, endpoint: Endpoint) -> bool:
        assert self._session is not None
        path = replica.route.health_path or endpoint.route.health_path
        seconds = replica.route.health_seconds or TIMEOUT_SECONDS
        if replica.route.protocol is Protocol.GRPC:
            return await _speaks_grpc(replica, path, seconds)
        headers = {}
        if replica.route.secret:
            headers["Authorization"] = f"token {replica.route.secret}"
        expected = replica.route.health_status
        url = f"{replica.route.url.rstrip('/')}/{path.lstrip('/')}"
        with suppress(ClientError, TimeoutError, OSError, ValueError):
            async with self._session.get(
                URL(url, encoded=True),
                headers=headers,
                timeout=ClientTimeout(seconds, sock_connect=TIMEOUT_SECONDS),
                allow_redirects=False,
            ) as response:
                return response.status == expected if expected else response.status < 400
        return False


async def _speaks_grpc(replica: Replica, path: str, seconds: float) -> bool:
    try:
        found = await grpc_health.check(
            replica.host, replica.port, replica.route.secret, path, seconds
        )
    except (TimeoutError, OSError):
        return False
    return found.is_healthy
