"""Health checks of replicas that do not serve yet, and of those that gateways report as failed.

Gateways check the serving replicas. The manager must check a replica successfully before it
enters the routing table, so a rollout does not depend on a running gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol as Interface

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from bai_services import grpc_health
from bai_services.core.serving.definition import HealthCheck
from bai_services.core.serving.gateway_records import Protocol

from .background import BackgroundCalls
from .replica_launch import ReplicaSecrets

MAX_CONCURRENT = 512
# Checks may hang until their timeout: one owner's checks must not delay those of others.
MAX_PER_OWNER = 16
# Delay before a failed check is repeated; short, so that a new replica serves soon.
REPEAT_SECONDS = 0.25


class Probed(Interface):
    """A replica that is checked."""

    @property
    def id(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def revision_id(self) -> str: ...


class HealthProbes:
    """Runs at most one check per replica at a time. ``passed`` is called after a successful check,
    ``failed`` after a failed check that is not repeated.
    """

    def __init__(
        self,
        secrets: ReplicaSecrets,
        passed: Callable[[Probed], Awaitable[None]],
        failed: Callable[[Probed], Awaitable[None]] | None = None,
    ) -> None:
        self._secrets = secrets
        self._passed = passed
        self._failed = failed
        self._calls = BackgroundCalls(MAX_CONCURRENT, MAX_PER_OWNER)
        self._retry_timers: dict[str, asyncio.TimerHandle] = {}  # by replica
        self._session: ClientSession | None = None

    def begin(
        self,
        replica: Probed,
        owner_id: str,
        health: HealthCheck,
        repeats: int = 0,
        protocol: Protocol = Protocol.HTTP,
    ) -> None:
        """Start a check of a replica. Do nothing if one is running or a concurrency limit is
        reached. A failed check is repeated up to ``repeats`` times.
        """
        if (timer := self._retry_timers.pop(replica.id, None)) is not None:
            timer.cancel()
        if self._calls.may_begin(replica.id, owner_id):
            check = self._check(replica, owner_id, health, repeats, protocol)
            self._calls.begin(replica.id, owner_id, check)

    async def finish(self) -> None:
        """Wait for the checks that are running."""
        await self._calls.finish()

    async def close(self) -> None:
        await self._calls.close()
        for timer in self._retry_timers.values():
            timer.cancel()
        self._retry_timers.clear()
        if self._session is not None:
            await self._session.close()

    async def _check(
        self,
        replica: Probed,
        owner_id: str,
        health: HealthCheck,
        repeats: int,
        protocol: Protocol,
    ) -> None:
        check = self._is_grpc_healthy if protocol is Protocol.GRPC else self._is_healthy
        if await check(replica, health):
            await self._passed(replica)
        elif repeats:
            self._retry_timers[replica.id] = asyncio.get_running_loop().call_later(
                REPEAT_SECONDS, self.begin, replica, owner_id, health, repeats - 1, protocol
            )
        elif self._failed is not None:
            await self._failed(replica)

    async def _is_grpc_healthy(self, replica: Probed, health: HealthCheck) -> bool:
        url, secret = URL(replica.url), self._secrets.of(replica.revision_id)
        try:
            found = await grpc_health.check(
                url.host or "", url.port or 0, secret, health.path, health.timeout_seconds
            )
        except (TimeoutError, OSError):
            return False
        return found.is_healthy

    async def _is_healthy(self, replica: Probed, health: HealthCheck) -> bool:
        try:
            async with self._http.get(
                replica.url + health.path,
                headers={"Authorization": f"token {self._secrets.of(replica.revision_id)}"},
                timeout=ClientTimeout(total=health.timeout_seconds),
                allow_redirects=False,
            ) as response:
                return response.status == health.expected_status
        except (TimeoutError, ClientError, OSError, ValueError):
            return False

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first check, because it is bound to the running event loop.
            self._session = ClientSession(
                connector=TCPConnector(limit=MAX_CONCURRENT, force_close=True),
                cookie_jar=DummyCookieJar(),
                trust_env=False,
            )
        return self._session
