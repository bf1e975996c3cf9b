"""`/provisioned-machines`: machines that the provisioning command has started."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from bai_services.core.cluster import provisioning as records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import ResponseModel, SlotsOutput

_TAG = "resource groups"


class ProvisionedMachine(ResponseModel):
    """``reference``: the name that the command has returned. ``joined_at`` and ``agent_id``: null
    before its agent has joined. ``reason``: why the machine is drained or was abandoned, or that
    the last attempt to stop it failed. ``message``: the error of the command.
    """

    id: str
    created_at: datetime
    resource_group: str
    status: str
    status_changed_at: datetime
    slots: SlotsOutput
    reference: str
    agent_id: str | None
    joined_at: datetime | None
    reason: str
    message: str


class ProvisionedMachinesHandler(APIHandler):
    @operation("List provisioned machines", tag=_TAG, returns=ProvisionedMachine, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ProvisionedMachine]:
        return await self.manager.cluster.provisioning.page(self.caller, query)


class ProvisionedMachineHandler(APIHandler):
    @operation("Read a provisioned machine", tag=_TAG, returns=ProvisionedMachine)
    async def get(self, key: str) -> records.ProvisionedMachine:
        return await self.manager.cluster.provisioning.get(self.caller, key)

    @operation(
        "Stop a provisioned machine as soon as it has no sessions",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self, key: str) -> None:
        await self.manager.cluster.provisioning.remove(self.caller, key)


ROUTES = [
    ("/provisioned-machines", ProvisionedMachinesHandler),
    (r"/provisioned-machines/(?P<key>[^/]+)", ProvisionedMachineHandler),
]
