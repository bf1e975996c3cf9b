"""Extend the lifetime of a running session, up to the limit of its keypair policy."""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller
from bai_services.core.sessions.records import Session
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.time_limits import TimeLimitStore

from ...accounts import authorizer
from ...audit import Audit
from ..lifecycle import Lifecycle
from ..sessions import Sessions, target_of


class Lifetimes:
    """Extends the lifetimes of running sessions."""

    def __init__(
        self,
        sessions: Sessions,
        limits: TimeLimitStore,
        store: SessionStore,
        lifecycle: Lifecycle,
        audit: Audit,
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._store = store
        self._lifecycle = lifecycle
        self._audit = audit

    async def extend(self, caller: Caller, key: str, seconds: int) -> Session:
        """Let a running session run for ``seconds`` longer.

        Raises
        ------
        Conflict
            If the session is not running or has no lifetime limit.
        InvalidRequest
            If the owner's keypair policy does not allow the extended lifetime.
        """
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        await self._limits.extend(row.id, seconds)
        entry = self._audit.entry(
            caller,
            "session.extend",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            seconds=seconds,
        )
        await self._audit.add(entry)
        # Notify the scheduler, which uses the end time for reservations.
        self._lifecycle.notify(await self._store.find(row.id))
        return await self._sessions.view(caller, row)
