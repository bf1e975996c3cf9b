"""The audit log: creating and reading entries."""

from __future__ import annotations

from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery, Page
from bai_services.db.audit import AuditEntry, AuditStore, Row
from bai_services.db.database import Database

from .accounts import authorizer
from .clock import Clock


class Audit:
    """Creates the entry that a store method writes together with its change."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._store = AuditStore(database)
        self._clock = clock

    def entry(
        self,
        caller: Caller,
        action: str,
        entity_id: str,
        *,
        domain: str | None = None,
        outcome: str = "done",
        **details: Any,
    ) -> AuditEntry:
        """Return the entry for ``action``, written as ``entity.verb`` (``project.create``).

        ``details`` must contain no secret. For an update, name the changed fields rather than their
        values where these may be private.
        """
        return AuditEntry(
            at=self._clock(),
            actor_id=caller.user_id,
            actor=caller.username or caller.role,
            client_ip=caller.client_ip,
            action=action,
            entity=action.partition(".")[0],
            entity_id=entity_id,
            domain=domain,
            outcome=outcome,
            details=details,
        )

    def system(
        self, action: str, entity_id: str, *, domain: str | None = None, **details: Any
    ) -> AuditEntry:
        """Return the entry for an action of the manager itself."""
        return AuditEntry(
            at=self._clock(),
            actor="manager",
            action=action,
            entity=action.partition(".")[0],
            entity_id=entity_id,
            domain=domain,
            details=details,
        )

    async def add(self, entry: AuditEntry) -> None:
        """Write an entry that does not belong to a change (a refused sign-in)."""
        await self._store.add(entry)

    async def refused(self, caller: Caller, path: str, error: Forbidden) -> None:
        """Record that a caller was refused a change; ``path`` is what they called."""
        action = str(error.details.get("action") or "request.change")
        await self.add(
            self.entry(caller, action, path, domain=caller.domain or None, outcome=error.code)
        )

    async def page(self, caller: Caller, query: ListQuery) -> Page[Row]:
        """Return the entries that the caller may see: all, or those of the caller's domain.

        Of the caller's domain, entries of actors with a higher role are left out.
        """
        visible = authorizer.visibility(caller, "audit.read")
        return await self._store.page(query, visible.domain, visible.hidden_roles)
