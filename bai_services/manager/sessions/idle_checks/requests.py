"""Keep a session alive, and exclude it from idle checks."""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.records import Session
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.time_limits import TimeLimitStore

from ...accounts import authorizer
from ...audit import Audit
from ...clock import Clock
from ..sessions import Sessions, target_of


class IdleCheckRequests:
    """Changes of users to the idle checks of their running sessions."""

    def __init__(
        self,
        sessions: Sessions,
        store: IdleCheckStore,
        limits: TimeLimitStore,
        clock: Clock,
        audit: Audit,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._limits = limits
        self._clock = clock
        self._audit = audit

    async def keep_alive(self, caller: Caller, key: str) -> Session:
        """Restart the idle timeout, and the time windows of the checkers that allow it, as if the
        session had just been used.

        Raises
        ------
        Conflict
            If the session is not running, or no checker allows another keep-alive.
        """
        row = await self._running(caller, key)
        now = self._clock()
        await self._store.keep_alive(row.id, now)
        await self._limits.record_activity(row.id, now, None)
        await self._record(caller, "session.keep-alive", row)
        return await self._sessions.view(caller, row)

    async def exclude(self, caller: Caller, key: str, is_excluded: bool) -> Session:
        """Exclude a session from the checkers that allow it, or include it again.

        Raises
        ------
        Conflict
            If the session is not running, or no checker allows the exclusion.
        """
        row = await self._running(caller, key)
        await self._store.exclude(row.id, is_excluded)
        action = "session.exclude-idle-checks" if is_excluded else "session.include-idle-checks"
        await self._record(caller, action, row)
        return await self._sessions.view(caller, row)

    async def _running(self, caller: Caller, key: str) -> SessionRow:
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        if row.status is not Status.RUNNING:
            raise Conflict(f"session {row.name} is {row.status}; only running sessions are judged")
        return row

    async def _record(self, caller: Caller, action: str, row: SessionRow) -> None:
        entry = self._audit.entry(
            caller, action, row.id, domain=row.domain, owner_id=row.owner_id, name=row.name
        )
        await self._audit.add(entry)
