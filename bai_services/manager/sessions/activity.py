"""Session activity: sessions report their own use, and users keep sessions alive."""

from __future__ import annotations

from datetime import timedelta

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import Conflict
from bai_services.core.sessions.idle import idleness_of, next_report_seconds
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.time_limits import TimeLimitStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from .sessions import Row, Sessions, target_of


class SessionActivity:
    """One method per verb."""

    def __init__(
        self,
        sessions: Sessions,
        limits: TimeLimitStore,
        store: SessionStore,
        clock: Clock,
        audit: Audit,
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._store = store
        self._clock = clock
        self._audit = audit

    async def note(self, caller: Caller, key: str, idle_seconds: float) -> Row:
        """Record the last use of a session, ``idle_seconds`` ago; return when it is stopped for
        idleness.

        A session reports its own last use; a report by anybody else counts as a use now. Nothing is
        stored where the session has no idle timeout.

        Raises
        ------
        Conflict
            If a user keeps alive a session that is not running.
        """
        row = await self._sessions.visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        is_itself, now = caller.role is Role.SESSION, self._clock()
        if not is_itself and row.status is not Status.RUNNING:
            raise Conflict(f"session {row.name} is {row.status}; only a running one is kept alive")
        seconds = await self._limits.idle_timeout(row.id)
        if seconds:
            used_at = now - timedelta(seconds=idle_seconds)
            await self._limits.record_activity(row.id, used_at, now if is_itself else None)
            row = await self._store.find(row.id)
        if not is_itself:
            entry = self._audit.entry(
                caller, "session.keep-alive", row.id, domain=row.domain, name=row.name
            )
            await self._audit.add(entry)
        started_at = row.started_at if row.status is Status.RUNNING else None
        idleness = idleness_of(
            SessionType(row.type), started_at, row.used_at, row.use_heard_at, seconds
        )
        return {
            "idle_since": None if idleness is None else idleness.since,
            "idle_ends_at": None if idleness is None else idleness.ends_at,
            "next_report_seconds": next_report_seconds(idleness, seconds, now),
        }
