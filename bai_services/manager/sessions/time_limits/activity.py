"""Record the activity of sessions, which restarts their idle timeout."""

from __future__ import annotations

from datetime import timedelta

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import Conflict
from bai_services.core.sessions.idle import idleness_of, next_report_seconds
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.core.sessions.records import IdleDeadline
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.time_limits import TimeLimitStore

from ...accounts import authorizer
from ...audit import Audit
from ...clock import Clock
from ..sessions import Sessions, target_of


class SessionActivity:
    """Records activity that sessions report, and requests of users to keep a session alive."""

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

    async def record_use(self, caller: Caller, key: str, idle_seconds: float) -> IdleDeadline:
        """Record that a session was last used ``idle_seconds`` ago; return its idle deadline.

        The caller is the session, which reports its last use, or a user who keeps the session
        alive. The time of a report is not stored if the session has no idle timeout; the time of a
        user's request is, because it counts for a timeout that is introduced later.

        Raises
        ------
        Conflict
            If a user tries to keep alive a session that is not running.
        """
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        is_own_report, now = caller.role is Role.SESSION, self._clock()
        if not is_own_report and row.status is not Status.RUNNING:
            raise Conflict(
                f"session {row.name} is {row.status}; only a running session can be kept alive"
            )
        stop, report = await self._limits.idle_timeouts(row.id)
        if report.seconds or not is_own_report:
            used_at = now - timedelta(seconds=idle_seconds)
            await self._limits.record_activity(row.id, used_at, now if is_own_report else None)
            row = await self._store.find(row.id)
        if not is_own_report:
            entry = self._audit.entry(
                caller,
                "session.keep-alive",
                row.id,
                domain=row.domain,
                owner_id=row.owner_id,
                name=row.name,
            )
            await self._audit.add(entry)
        started_at = row.started_at if row.status is Status.RUNNING else None
        kind = SessionType(row.type)
        idleness, reported = (
            idleness_of(
                kind,
                started_at,
                row.used_at,
                row.use_heard_at,
                timeout.seconds,
                timeout.limited_at,
                row.use_known_since,
            )
            for timeout in (stop, report)
        )
        return IdleDeadline(
            idle_since=None if idleness is None else idleness.since,
            idle_ends_at=None if idleness is None else idleness.ends_at,
            next_report_seconds=next_report_seconds(kind, reported, report.seconds, now),
        )
