"""Create and read audit log entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.audit import AuditEntry, LoggedEntry, OwnerEntry, changed_values
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery, Page
from bai_services.db.audit import AuditStore
from bai_services.db.database import Database

from .accounts import authorizer
from .clock import Clock

# Repeated accesses of a caller to the same object within this time are not recorded.
ACCESS_INTERVAL = timedelta(minutes=10)
# Maximum number of recent accesses kept in memory.
MAX_RECENT_ACCESSES = 10_000


class Audit:
    """Creates and reads audit log entries.

    A store writes the entry for a change of data in the same transaction as the change.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._store = AuditStore(database)
        self._clock = clock
        # Times of the last entries by actor, action and object, oldest first.
        self._recent: OrderedDict[tuple[str, str, str], datetime] = OrderedDict()

    def entry(
        self,
        caller: Caller,
        action: str,
        entity_id: str,
        *,
        domain: str | None = None,
        outcome: str = "done",
        owner_id: str | None = None,
        on_behalf_of: str = "",
        **details: Any,
    ) -> AuditEntry:
        """Return the entry for ``action``, written as ``entity.verb`` (``project.create``).

        ``owner_id`` is the owner of the object. ``on_behalf_of`` is the user for whom the Hub or an
        administrator acts. ``details`` must contain no secret; for an update, use ``changes``.
        """
        if caller.role is Role.SESSION:
            details = {**details, "via": "session"}
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
            on_behalf_of=on_behalf_of,
            owner_id=owner_id,
        )

    def changes(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        """Return the details of an entry for an update; see ``changed_values``."""
        return changed_values(before, after)

    def system(
        self,
        action: str,
        entity_id: str,
        *,
        domain: str | None = None,
        owner_id: str | None = None,
        **details: Any,
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
            owner_id=owner_id,
        )

    async def record_access(
        self,
        caller: Caller,
        action: str,
        entity_id: str,
        *,
        owner_id: str | None,
        domain: str | None,
        **details: Any,
    ) -> None:
        """Record that a user reads another user's object.

        A repeated access within ``ACCESS_INTERVAL`` is not recorded. The owner's own accesses and
        those of components are never recorded.
        """
        if caller.role in (Role.HUB, Role.AGENT) or caller.user_id == owner_id:
            return
        now = self._clock()
        key = (caller.user_id or caller.client_ip, action, entity_id)
        last = self._recent.get(key)
        if last is not None and now - last < ACCESS_INTERVAL:
            return
        self._recent[key] = now
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_RECENT_ACCESSES:
            self._recent.popitem(last=False)
        await self.add(
            self.entry(caller, action, entity_id, domain=domain, owner_id=owner_id, **details)
        )

    async def add(self, entry: AuditEntry) -> None:
        """Write the entry of an event that changes no data, for example a rejected sign-in."""
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

    async def page_of_object(
        self, query: ListQuery, entity: str, entity_id: str
    ) -> Page[OwnerEntry]:
        """Return the entries about one object, without checking permissions."""
        return await self._store.page_of_object(query, entity, entity_id)

    async def page_of_owner(self, caller: Caller, query: ListQuery) -> Page[OwnerEntry]:
        """Return the entries of other actors about the caller's own objects."""
        authorizer.require(caller, "audit.read-own")
        return await self._store.page_of_owner(query, caller.user_id or "")
