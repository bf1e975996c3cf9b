"""`/maintenances`: periods in which sessions do not start or users can change nothing."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import StringConstraints
from pydantic.functional_validators import AfterValidator

from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations import maintenances as records
from bai_services.core.operations.maintenances import MAX_REASON_CHARS

from ..base import APIHandler, operation
from ..fields import Body, Count, Instant, NameText, ResponseModel, readable

_TAG = "maintenances"

ReasonText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_REASON_CHARS, strip_whitespace=True),
    AfterValidator(readable),
]


class MaintenanceChange(Body):
    """``ends_at`` null: no end. ``version``: the version that you have read; if there is a newer
    one, you get a conflict.
    """

    version: Count | None = None
    reason: ReasonText | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None


class NewMaintenance(Body):
    """``mode``: no-starts (no session starts in the period), drain (in addition, sessions that
    could still run in the period do not start before it), read-only (as no-starts, and users can
    change nothing).
    """

    scope: Literal["all", "group", "agent"] = "all"
    target: NameText | None = None
    mode: Literal["no-starts", "drain", "read-only"] = "drain"
    reason: ReasonText
    starts_at: Instant | None = None
    ends_at: Instant | None = None


class Maintenance(ResponseModel):
    id: str
    created_at: datetime
    version: int
    scope: str
    target: str | None
    mode: str
    reason: str
    starts_at: datetime
    ends_at: datetime | None
    author: str


class CurrentMaintenance(ResponseModel):
    """``is_active``: the period has started. ``rejects_changes``: your requests for changes, such
    as the start of a session, are rejected now.
    """

    id: str
    scope: str
    target: str | None
    mode: str
    reason: str
    starts_at: datetime
    ends_at: datetime | None
    is_active: bool
    rejects_changes: bool


class MaintenancesHandler(APIHandler):
    @operation("List all maintenances", tag=_TAG, returns=Maintenance, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Maintenance]:
        return await self.manager.operations.maintenances.page(self.caller, query)

    @operation(
        "Plan a maintenance",
        tag=_TAG,
        body=NewMaintenance,
        returns=Maintenance,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewMaintenance) -> records.Maintenance:
        spec = body.given_fields()
        return await self.manager.operations.maintenances.create(self.caller, spec)


class CurrentMaintenancesHandler(APIHandler):
    @operation(
        "List the planned and active maintenances",
        tag=_TAG,
        returns=CurrentMaintenance,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.CurrentMaintenance]:
        return await self.manager.operations.maintenances.current(self.caller, query)


class MaintenanceHandler(APIHandler):
    @operation("Read a maintenance", tag=_TAG, returns=Maintenance)
    async def get(self, key: str) -> records.Maintenance:
        return await self.manager.operations.maintenances.get(self.caller, key)

    @operation("Change a maintenance", tag=_TAG, body=MaintenanceChange, returns=Maintenance)
    async def patch(self, key: str, body: MaintenanceChange) -> records.Maintenance:
        changes = body.given_fields()
        return await self.manager.operations.maintenances.update(self.caller, key, changes)

    @operation("End or cancel a maintenance", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.operations.maintenances.delete(self.caller, key)


ROUTES = [
    ("/maintenances", MaintenancesHandler),
    ("/maintenances/current", CurrentMaintenancesHandler),
    (r"/maintenances/(?P<key>[^/]+)", MaintenanceHandler),
]
