"""Create and read audit log entries."""

from __future__ import annotations

from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry, LoggedEntry
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery, Page
from bai_services.db.audit import AuditStore
from bai_services.db.database import Database

from .accounts import authorizer
from .clock import Clock


class Audit:
    """Creates and reads audit log entries.

    A store writes the entry for a change of data in the same transaction as the change.
    """

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

        ``details`` must contain no secret. For an update, pass the names of the changed fields if
        their values may be private.
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
        """Write an entry without a change of data, for example a rejected sign-in."""
        await self._store.add(entry)

    async def record_denial(self, caller: Caller, path: str, error: Forbidden) -> None:
        """Record that a caller was denied a change; ``path`` is the path of the request."""
        action = str(error.details.get("action") or "request.change")
        await self.add(
            self.entry(caller, action, path, domain=caller.domain or None, outcome=error.code)
        )

    async def page(self, caller: Caller, query: ListQuery) -> Page[LoggedEntry]:
        """Return the entries that the caller may see: all, or those of the caller's domain.

        Callers who see only their domain do not see entries of actors with a higher role.
        """
        visible = authorizer.visibility(caller, "audit.read")
        return await self._store.page(query, visible.domain, visible.hidden_roles)
