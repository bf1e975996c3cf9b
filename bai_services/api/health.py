"""`/health`: the health of the manager, for load balancers and monitoring."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from .base import APIHandler, operation
from .fields import ResponseModel


class Health(ResponseModel):
    """``database``, ``hub``: whether they respond. ``standby``: whether another manager has the
    scheduler's lease.
    """

    status: Literal["ok", "degraded"]
    version: str
    database: bool
    hub: bool
    standby: bool


class HealthHandler(APIHandler):
    @operation("Read the health of the manager", tag="health", returns=Health, is_open=True)
    async def get(self) -> None:
        health = await self.manager.health.get()
        if not health.database:
            self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
        self.write_json(health)
        self.finish()  # not awaited: the client may have disconnected


ROUTES = [("/health", HealthHandler)]
