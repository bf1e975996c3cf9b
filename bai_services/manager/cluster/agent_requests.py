"""Requests to agents about their images, and the reports of the agents."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.db.cluster.agent_checks import AgentCheckStore

from ..context import ManagerContext

POLL_SECONDS = 0.1
# Open requests are read again after this time, because another manager may create them.
CACHE_TTL_SECONDS = 2.0


class AgentRequests:
    """Requests of one ``kind``, at most one per agent; expired requests are not sent to agents."""

    def __init__(
        self,
        context: ManagerContext,
        table: sa.Table,
        kind: str,
        expiry: timedelta,
        wake: Callable[[Iterable[str]], None],
    ) -> None:
        self._store = AgentCheckStore(context.database, table)
        self._clock = context.clock
        self._kind = kind
        self._expiry = expiry
        self._wake = wake
        # Open requests by agent, and the monotonic time at which they were read.
        self._open: tuple[float, Mapping[str, Mapping[str, Any]]] | None = None

    async def create(
        self, agent_ids: Sequence[str], request: Mapping[str, Any], entry: AuditEntry | None = None
    ) -> str:
        """Create a request to agents, which replaces their earlier requests; return its id."""
        request_id = str(uuid.uuid4())
        await self._store.request(request_id, agent_ids, self._clock(), entry, request=request)
        self._open = None
        self._wake(agent_ids)
        return request_id

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open request to an agent."""
        if self._open is None or time.monotonic() - self._open[0] > CACHE_TTL_SECONDS:
            requests = await self._store.open_requests(self._clock() - self._expiry)
            self._open = time.monotonic(), requests
        row = self._open[1].get(agent_id)
        if row is None:
            return []
        return [{**row["request"], "id": f"{self._kind}-{row['id']}", "kind": self._kind}]

    async def report(self, agent_id: str, work_id: str, result: Mapping[str, Any]) -> None:
        """Store the result of an agent; ignore results of earlier requests."""
        await self._store.report(agent_id, work_id.removeprefix(f"{self._kind}-"), result)
        self._open = None

    async def wait(
        self, request_id: str, count: int, seconds: float
    ) -> Mapping[str, Mapping[str, Any]]:
        """Wait for ``count`` results, at most ``seconds``; return the results by agent."""
        deadline = time.monotonic() + seconds
        while True:
            results = await self._store.results(request_id)
            if len(results) >= count or time.monotonic() > deadline:
                return results
            await asyncio.sleep(POLL_SECONDS)

    async def forget(self, request_id: str) -> None:
        """Delete a request and its results."""
        await self._store.forget(request_id)
        self._open = None
