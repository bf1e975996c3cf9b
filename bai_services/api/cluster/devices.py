"""`/devices`"""

from __future__ import annotations

from typing import Any

from bai_services.core.listing import ListQuery

from ..base import APIHandler, operation
from ..fields import Shown


class Device(Shown):
    """``capacity`` and ``used`` are shares of the device, as texts.

    ``share_in_force`` is the share that all sessions on the device have until it is empty, on
    devices that require equal shares; else null.
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
    async def get(self, query: ListQuery) -> Any:
        return await self.manager.cluster.agents.devices(self.caller, query)


ROUTES = [("/devices", DevicesHandler)]
