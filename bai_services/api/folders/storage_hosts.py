"""`/storage-hosts` and `/quota-scopes`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.manager.folders import quotas, storage_hosts

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel

_TAG = "storage"


class StorageHost(ResponseModel):
    """A storage host, as the caller sees it."""

    name: str
    backend: str
    capabilities: list[str]
    status: Literal["ready", "full", "read-only", "slow", "gone"]
    message: str
    total_bytes: int
    free_bytes: int
    checked_at: datetime
    permissions: list[str] = Field(description="The caller's permissions.")
    is_default: bool
    path: str | None = Field(description="Null except for superadmins.")


class QuotaScope(ResponseModel):
    """The limit and usage of a user or project on a storage host."""

    host: str
    scope: str
    kind: str
    domain: str | None
    owner: str | None
    project: str | None
    limit_bytes: int | None = Field(description="The effective limit; null: no limit.")
    policy_bytes: int | None
    override_bytes: int | None
    used_bytes: int | None = Field(description="Usage at `counted_at`; null: not counted yet.")
    percent: int | None = Field(
        description="Usage in percent of the limit, at most 100; null without a limit or before "
        "the first count."
    )
    counted_at: datetime | None
    source: Literal["counter", "scan"]
    is_enforced: bool = Field(
        description="Whether the file system enforces the limit, also for sessions. Otherwise only "
        "the manager enforces it, for uploads, copies and other operations of the manager."
    )


class QuotaRequest(Body):
    """A new limit of a quota scope."""

    limit_bytes: Annotated[int, Field(ge=-1, le=2**60)] | None = Field(
        description="-1: no limit; null: the limit of the policy."
    )


class HostsHandler(APIHandler):
    @operation("List storage hosts", tag=_TAG, returns=StorageHost, is_list=True)
    async def get(self, query: ListQuery) -> Page[storage_hosts.HostView]:
        return await self.manager.folders.storage_hosts.page(self.caller, query)


class ScopesHandler(APIHandler):
    @operation(
        "List quota scopes",
        tag=_TAG,
        returns=QuotaScope,
        is_list=True,
        is_for_sessions=True,
        parameters={"mine": "true: only your own scopes and those of your projects"},
    )
    async def get(self, query: ListQuery) -> Page[quotas.QuotaScope]:
        return await self.manager.folders.quotas.page(self.caller, query)


class ScopeHandler(APIHandler):
    @operation("Read a quota scope", tag=_TAG, returns=QuotaScope)
    async def get(self, host: str, scope: str) -> quotas.QuotaScope:
        return await self.manager.folders.quotas.get(self.caller, host, scope)

    @operation("Set the limit of a quota scope", tag=_TAG, body=QuotaRequest, returns=QuotaScope)
    async def put(self, host: str, scope: str, body: QuotaRequest) -> quotas.QuotaScope:
        return await self.manager.folders.quotas.put(self.caller, host, scope, body.limit_bytes)


ROUTES: list[tuple[str, type[APIHandler]]] = [
    ("/storage-hosts", HostsHandler),
    ("/quota-scopes", ScopesHandler),
    (r"/quota-scopes/(?P<host>[^/]+)/(?P<scope>[^/]+)", ScopeHandler),
]
