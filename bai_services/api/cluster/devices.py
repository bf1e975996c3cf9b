"""`/devices`: the accelerators of all agents."""

from __future__ import annotations

from typing import Any

from bai_services.core.cluster import records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import ResponseModel


class Device(ResponseModel):
    """``capacity`` and ``used`` are decimal numbers; "1" is the whole device.

    ``share_in_force``: the required share of all sessions on a device in use that requires equal
    shares; otherwise null.
    """

    id: str
    agent_id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None
    numa_node: int | None
    is_simulated: bool
    is_healthy: bool
    capacity: str
    used: str
    share_in_force: str | None
    facts: dict[str, Any]


class ListedDevice(Device):
    resource_group: str
    status: str


class DevicesHandler(APIHandler):
    @operation("List devices", tag="agents", returns=ListedDevice, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ListedDevice]:
        return await self.manager.cluster.agents.devices(self.caller, query)


ROUTES = [("/devices", DevicesHandler)]
