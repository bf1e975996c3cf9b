"""`/resource-groups`, and their links to the accounts that may use them."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

from bai_services.core.cluster import records
from bai_services.core.listing import ListQuery, Page
from bai_services.manager.cluster import schedules

from ..base import APIHandler, operation
from ..fields import (
    Body,
    CodedText,
    Count,
    Description,
    NameText,
    ResponseModel,
    SlotsInput,
    SlotsOutput,
)

_TAG = "resource groups"


class ResourceGroupFields(Body):
    description: Description = ""
    is_active: bool = True
    is_default: bool = False
    is_public: bool = True
    engine: NameText = "process"
    scheduler: NameText = "fifo"
    scheduler_opts: dict[NameText, Any] = {}
    allowed_session_types: list[NameText] = []
    total_resource_slots: SlotsInput = {}
    max_concurrent_sessions: Count | None = None


class NewResourceGroup(ResourceGroupFields):
    name: NameText


class ResourceGroupChange(ResourceGroupFields):
    """``scheduler_opts`` replaces all options. ``scheduler_opts_changes`` changes the given options
    only, also in nested objects; null resets an option to its default.
    """

    scheduler_opts_changes: dict[NameText, Any] = {}


class ResourceGroup(ResponseModel):
    name: str
    created_at: datetime
    description: str
    is_active: bool
    is_default: bool
    is_public: bool
    engine: str
    scheduler: str
    scheduler_opts: dict[str, Any]
    allowed_session_types: list[str]
    total_resource_slots: SlotsOutput
    max_concurrent_sessions: int | None


class GroupLink(ResponseModel):
    """Permission to use a group.

    ``kind``: domain, project, user or keypair, with the id ``target`` and the name ``name``.
    """

    kind: str
    target: str
    name: str


class Lane(ResponseModel):
    """One row of the schedule: a device, or an agent itself (``device_id`` is then empty)."""

    agent_id: str
    device_id: str
    family: str
    model: str


class DeviceShare(ResponseModel):
    device_id: str
    slot: str
    amount: str


class ScheduledKernel(ResponseModel):
    agent_id: str
    slots: SlotsOutput
    devices: list[DeviceShare]


class SessionName(ResponseModel):
    id: str
    name: str
    owner: str
    project: str


class ScheduledSession(ResponseModel):
    """A running or pending session.

    If you may not see the session, ``session`` and ``reason_coded`` are null and ``reason`` is
    empty. ``position`` and ``priority`` are null for a running session. ``kernels`` is empty for a
    pending session without a reservation. ``certainty`` (known, estimated, rough, unknown)
    refers to the end of a running session or to the start of a pending session. ``standing``: the
    ascending sort key of drf and fair-share among sessions of one priority.
    """

    session: SessionName | None
    kernels: list[ScheduledKernel]
    starts_at: datetime | None
    ends_at: datetime | None
    certainty: str
    position: int | None
    priority: int | None
    reason: str
    reason_coded: CodedText | None
    standing: list[float]


class ScheduledReservation(ResponseModel):
    """An approved advance reservation that has not ended, with the agents that it holds.
    ``resources``: the amounts that it holds on each agent, unless ``whole_machines`` is true.
    """

    id: str
    name: str
    project: str
    agents: list[str]
    resources: SlotsOutput
    whole_machines: bool
    starts_at: datetime
    ends_at: datetime


class Schedule(ResponseModel):
    """``running``: the up to 300 running sessions that end first. ``waiting`` has up to 200
    pending sessions: the first in the queue.

    If ``is_complete`` is false, the lists are empty, because this manager is on standby or is still
    loading the queue.
    """

    resource_group: str
    is_complete: bool
    at: datetime
    order: str
    lanes: list[Lane]
    running: list[ScheduledSession]
    waiting: list[ScheduledSession]
    running_count: int
    waiting_count: int
    reservations: list[ScheduledReservation]


class ResourceGroupsHandler(APIHandler):
    @operation("List resource groups", tag=_TAG, returns=ResourceGroup, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ResourceGroup]:
        return await self.manager.cluster.resource_groups.page(self.caller, query)

    @operation(
        "Create a resource group",
        tag=_TAG,
        body=NewResourceGroup,
        returns=ResourceGroup,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewResourceGroup) -> records.ResourceGroup:
        return await self.manager.cluster.resource_groups.create(self.caller, body.given_fields())


class ResourceGroupHandler(APIHandler):
    @operation("Read a resource group", tag=_TAG, returns=ResourceGroup)
    async def get(self, key: str) -> records.ResourceGroup:
        return await self.manager.cluster.resource_groups.get(self.caller, key)

    @operation("Change a resource group", tag=_TAG, body=ResourceGroupChange, returns=ResourceGroup)
    async def patch(self, key: str, body: ResourceGroupChange) -> records.ResourceGroup:
        return await self.manager.cluster.resource_groups.update(
            self.caller, key, body.given_fields()
        )

    @operation("Delete an unused resource group", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.resource_groups.delete(self.caller, key)


class ScheduleHandler(APIHandler):
    @operation(
        "Read the running and pending sessions of a resource group, with agents and end times",
        tag=_TAG,
        returns=Schedule,
        is_expensive=True,
    )
    async def get(self, key: str) -> schedules.Schedule:
        return await self.manager.cluster.schedules.get(self.caller, key)


class GroupLinksHandler(APIHandler):
    @operation("List the links of a resource group", tag=_TAG, returns=GroupLink, is_list=True)
    async def get(self, key: str, query: ListQuery) -> Page[records.GroupLink]:
        return await self.manager.cluster.resource_groups.links(self.caller, key, query)


class GroupLinkHandler(APIHandler):
    @operation(
        "Link a domain, project, user or keypair that may use a group", tag=_TAG, returns=GroupLink
    )
    async def put(self, key: str, kind: str, target: str) -> records.GroupLink:
        return await self.manager.cluster.resource_groups.link(self.caller, key, kind, target)

    @operation("Delete a link of a resource group", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, kind: str, target: str) -> None:
        await self.manager.cluster.resource_groups.unlink(self.caller, key, kind, target)


_ONE = r"/resource-groups/(?P<key>[^/]+)"
ROUTES = [
    ("/resource-groups", ResourceGroupsHandler),
    (_ONE, ResourceGroupHandler),
    (_ONE + "/schedule", ScheduleHandler),
    (_ONE + "/links", GroupLinksHandler),
    (_ONE + r"/links/(?P<kind>[^/]+)/(?P<target>[^/]+)", GroupLinkHandler),
]
