"""Health checks of replicas that do not serve yet.

Gateways check the replicas that serve. A replica appears in their routing table only after it has
passed a check of the manager, so a rollout does not depend on a running gateway.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from bai_services.core.serving.definition import HealthCheck
from bai_services.db.serving.replicas import ReplicaRow

from .background import BackgroundCalls
from .replica_launch import ReplicaSecrets

MAX_CONCURRENT = 512
# Checks may hang until their timeout: those of one owner must not delay those of others.
MAX_PER_OWNER = 16


class HealthProbes:
    """At most one check of each replica at a time; results are reported to ``passed``."""

    def __init__(
        self, secrets: ReplicaSecrets, passed: Callable[[ReplicaRow], Awaitable[None]]
    ) -> None:
        self._secrets = secrets
        self._passed = passed
        self._calls = BackgroundCalls(MAX_CONCURRENT, MAX_PER_OWNER)
        self._session: ClientSession | None = None

    def begin(self, replica: ReplicaRow, owner_id: str, health: HealthCheck) -> None:
        """Start a check of a replica unless one is running, or too many are running."""
        if self._calls.may_begin(replica.id, owner_id):
            self._calls.begin(replica.id, owner_id, self._check(replica, health))

    async def finish(self) -> None:
        """Wait for the checks that are running."""
        await self._calls.finish()

    async def close(self) -> None:
        await self._calls.close()
        if self._session is not None:
            await self._session.close()

    async def _check(self, replica: ReplicaRow, health: HealthCheck) -> None:
        if await self._is_healthy(replica, health):
            await self._passed(replica)

    async def _is_healthy(self, replica: ReplicaRow, health: HealthCheck) -> bool:
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
