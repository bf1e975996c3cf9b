"""`/audit-log`: the entries of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bai_services.core import audit
from bai_services.core.listing import ListQuery, Page

from .base import APIHandler, operation
from .fields import ResponseModel


class AuditEntry(ResponseModel):
    """``entity_name``: the name of the object at the time of the action, or its id."""

    id: int
    at: datetime
    actor_id: str | None
    actor: str
    client_ip: str
    action: str
    entity: str
    entity_id: str
    entity_name: str
    domain: str | None
    outcome: str
    details: dict[str, Any]


class AuditLogHandler(APIHandler):
    @operation("List the entries of the audit log", tag="audit", returns=AuditEntry, is_list=True)
    async def get(self, query: ListQuery) -> Page[audit.LoggedEntry]:
        return await self.manager.audit.page(self.caller, query)


ROUTES = [("/audit-log", AuditLogHandler)]
