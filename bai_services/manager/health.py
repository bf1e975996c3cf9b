"""Health of the manager and its dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from bai_services import __version__
from bai_services.core.errors import BaiError
from bai_services.db.database import Database

from .hub.client import Hub
from .scheduling.lease import Lease

TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    status: str  # ok, degraded
    version: str
    database: bool
    hub: bool
    # Whether another manager holds the lease. This manager then serves requests, but does not
    # process the queue.
    standby: bool


class HealthCheck:
    def __init__(self, database: Database, hub: Hub, lease: Lease) -> None:
        self._database = database
        self._hub = hub
        self._lease = lease

    async def get(self) -> Health:
        """Return the health within ``TIMEOUT_SECONDS``, even if a dependency hangs."""
        database, hub = await asyncio.gather(
            _succeeds(self._database.check()), _succeeds(self._hub.check(TIMEOUT_SECONDS))
        )
        status = "ok" if database and hub else "degraded"
        return Health(status, __version__, database, hub, bool(self._lease.other))


async def _succeeds(check: Awaitable[None]) -> bool:
    try:
        await asyncio.wait_for(check, TIMEOUT_SECONDS)
    except (BaiError, TimeoutError):
        return False
    return True
