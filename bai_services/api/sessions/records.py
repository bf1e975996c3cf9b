"""`/kernels`, `/allocations`, `/session-dependencies`: lists across sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions import records

from ..base import APIHandler, operation
from ..fields import ResponseModel


class Kernel(ResponseModel):
    id: str
    created_at: datetime
    session_id: str
    session: str
    status: str
    owner: str
    role: str
    index: int
    hostname: str
    agent_id: str | None
    container_id: str | None
    usage: dict[str, Any] | None
    progress: dict[str, Any]
    last_seen_at: datetime | None


class LedgerEntry(ResponseModel):
    id: int
    session_id: str
    session: str
    owner: str
    kernel_id: str
    agent_id: str
    device_id: str | None
    slot: str
    amount: str
    allocated_at: datetime
    freed_at: datetime | None


class Dependency(ResponseModel):
    session_id: str
    session: str
    status: str
    depends_on: str


class KernelsHandler(APIHandler):
    @operation("List kernels", tag="sessions", returns=Kernel, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ListedKernel]:
        return await self.manager.sessions.records.kernels(self.caller, query)


class AllocationsHandler(APIHandler):
    @operation(
        "List allocations; all=true includes released ones",
        tag="sessions",
        returns=LedgerEntry,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.ListedAllocation]:
        return await self.manager.sessions.records.page(self.caller, query)


class DependenciesHandler(APIHandler):
    @operation(
        "List dependencies between sessions", tag="sessions", returns=Dependency, is_list=True
    )
    async def get(self, query: ListQuery) -> Page[records.ListedDependency]:
        return await self.manager.sessions.records.dependencies(self.caller, query)


ROUTES = [
    ("/kernels", KernelsHandler),
    ("/allocations", AllocationsHandler),
    ("/session-dependencies", DependenciesHandler),
]
