"""`/audit-log`: the log of changes and accesses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bai_services.core import audit
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.user_input import read_whole, shown
from bai_services.manager import audit_chain

from .base import APIHandler, operation
from .fields import ResponseModel

_TAG = "audit"


class AuditEntry(ResponseModel):
    """``entity_name``: the name of the object at the time of the action, or its id.

    ``on_behalf_of``: the user for whom the Hub or an administrator acted. ``details.changes`` has
    the values before and after an update. ``position`` and ``hash``: place in the hash chain.
    """

    id: int
    at: datetime
    actor_id: str | None
    actor: str
    on_behalf_of: str
    client_ip: str
    action: str
    entity: str
    entity_id: str
    entity_name: str
    owner_id: str | None
    domain: str | None
    outcome: str
    details: dict[str, Any]
    position: int | None
    hash: str | None


class OwnerEntry(ResponseModel):
    """An entry about an object of the caller."""

    id: int
    at: datetime
    actor: str
    on_behalf_of: str
    action: str
    entity: str
    entity_id: str
    entity_name: str
    outcome: str
    details: dict[str, Any]


class ChainProblem(ResponseModel):
    """``kind``: altered, removed or inserted. ``entry_id``: null if the entry was removed."""

    kind: str
    position: int
    entry_id: int | None
    message: str


class ChainVerification(ResponseModel):
    """``position`` and ``hash`` belong to the last verified entry.

    If ``is_complete`` is false and there is no problem, continue with ``after=position``.
    ``anchor_position`` and ``anchor_hash`` belong to the last entry that was removed because of its
    age.
    """

    checked: int
    position: int
    hash: str
    is_complete: bool
    unchained: int
    problem: ChainProblem | None
    anchor_position: int
    anchor_hash: str


class AuditLogHandler(APIHandler):
    @operation("List the entries of the audit log", tag=_TAG, returns=AuditEntry, is_list=True)
    async def get(self, query: ListQuery) -> Page[audit.LoggedEntry]:
        return await self.manager.audit.page(self.caller, query)


class OwnAuditLogHandler(APIHandler):
    @operation(
        "List the actions of others on the caller's sessions, folders, keys and account",
        tag=_TAG,
        returns=OwnerEntry,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[audit.OwnerEntry]:
        return await self.manager.audit.page_of_owner(self.caller, query)


class AuditVerificationHandler(APIHandler):
    @operation(
        "Verify the hash chain of the audit log",
        tag=_TAG,
        returns=ChainVerification,
        parameters={"after": "verify the entries after this position of the chain"},
        is_expensive=True,
    )
    async def get(self) -> audit_chain.ChainVerification:
        text = self.get_query_argument("after", "0")
        after = read_whole(text)
        if after is None or after >= 2**63:
            raise InvalidRequest(
                f"after={shown(text)!r} is not a position of the chain", field="after"
            )
        return await self.manager.audit_chain.verify(self.caller, after)


ROUTES = [
    ("/audit-log", AuditLogHandler),
    ("/audit-log/mine", OwnAuditLogHandler),
    ("/audit-log/verification", AuditVerificationHandler),
]
