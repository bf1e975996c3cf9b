"""Suspend and resume sessions, and prepare them for a stop.

The session's server holds a long poll (``notice``), so the manager needs no network access to
sessions. The database holds every step, and the manager with the lease continues after a crash.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.sessions.lifecycle import Event, Result, SessionType, Status
from bai_services.core.sessions.records import Session
from bai_services.core.sessions.suspensions import (
    DEFAULT_SECONDS,
    PendingNotice,
    Phase,
    Purpose,
    StopNotice,
    Suspension,
    check_seconds,
    is_stop_due,
    report_from_json,
)
from bai_services.db.open_work import Work
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.suspensions import SuspensionStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from ..scheduling.lease import Lease
from .lifecycle import Lifecycle
from .sessions import Sessions, target_of

TICK_SECONDS = 1.0
# Maximum duration of the long poll of a session; 1,000 sessions send 4 requests per second.
MAX_WAIT_SECONDS = 240.0
# If the requester has not stopped the session, its preparation is removed when this time has passed
# after the deadline.
ABANDONED_AFTER = timedelta(minutes=1)
# Kind of change that is published when a preparation begins or is reported.
SUSPENSION = "suspension"
# Requester of a preparation for a preemption.
PREEMPTION_REQUESTER = "scheduler"


class Suspensions:
    """Saves, stops and resumes sessions.

    Every manager passes notices to the sessions that poll this manager. Only the manager with the
    lease stops and resumes sessions.
    """

    def __init__(
        self,
        sessions: Sessions,
        rows: SessionStore,
        store: SuspensionStore,
        lifecycle: Lifecycle,
        clock: Clock,
        audit: Audit,
        *,
        lease: Lease,
        retention: timedelta,
    ) -> None:
        self._sessions = sessions
        self._rows = rows
        self._store = store
        self._lifecycle = lifecycle
        self._clock = clock
        self._audit = audit
        self._lease = lease
        self._retention = retention
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop = lease.loop("suspensions", self.step, TICK_SECONDS, Work.SUSPENSIONS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def suspend(
        self,
        caller: Caller,
        key: str,
        *,
        seconds: int = DEFAULT_SECONDS,
        is_requeue: bool = False,
        keeps_variables: bool = True,
    ) -> Session:
        """Save a running session, stop it after at most ``seconds``, and keep its home.

        The session is then SUSPENDED until it is resumed. With ``is_requeue`` it returns to the
        queue at once, and starts when its resources are free.

        Raises
        ------
        Conflict
            If the session is not running, is not interactive, has several kernels, or is already
            preparing for a stop.
        QuotaExceeded
            If the owner has too many suspended sessions.
        """
        row = await self._writable(caller, key)
        deadline = self._clock() + timedelta(seconds=check_seconds(seconds))
        purpose = Purpose.REQUEUE if is_requeue else Purpose.SUSPEND
        who = caller.username or caller.role
        await self._begin(row, deadline, purpose, who, keeps_variables)
        await self._record(caller, "session.suspend", row, requeue=is_requeue, seconds=seconds)
        return await self._sessions.view(caller, row)

    async def resume(self, caller: Caller, key: str) -> Session:
        """Return a suspended session to the queue.

        Raises
        ------
        Conflict
            If the session is not suspended.
        Forbidden
            If the owner has left the session's project.
        """
        row = await self._writable(caller, key)
        if row.status is not Status.SUSPENDED:
            raise Conflict(f"session {row.name} is {row.status}, not SUSPENDED", status=row.status)
        await self._sessions.resume(caller, row)
        return await self._sessions.view(caller, row)

    async def prepare(
        self,
        session_id: str,
        deadline: datetime,
        requested_by: str,
        *,
        keeps_variables: bool = True,
    ) -> None:
        """Make a running session save its state until ``deadline``, without stopping it.

        Use it in code that stops the session itself, for example preemption. The call returns at
        once; ``prepared`` returns whether the session has reported. If a preparation is already in
        progress, it continues.
        """
        row = await self._rows.find(session_id)
        try:
            await self._begin(row, deadline, Purpose.STOP, requested_by, keeps_variables)
        except Conflict:
            # The session is not running, cannot save its state, or is already preparing.
            return

    async def prepare_for_preemption(self, session_id: str, seconds: float) -> None:
        """Make a session that will be preempted save its state; see ``prepare``."""
        deadline = self._clock() + timedelta(seconds=seconds)
        await self.prepare(session_id, deadline, PREEMPTION_REQUESTER)

    async def cancel_preparation(self, session_id: str) -> None:
        """Drop a preparation for a cancelled preemption; the session continues."""
        await self._store.cancel_preparation(session_id)

    async def prepared(self, session_id: str) -> bool:
        """Return whether a session has reported, or is not preparing for a stop."""
        suspension = await self._store.get(session_id)
        return (
            suspension is None
            or suspension.phase is not Phase.PREPARING
            or suspension.report is not None
        )

    async def get(self, caller: Caller, key: str) -> Suspension:
        """Return the last suspension of a session.

        Raises
        ------
        NotFound
            If the session was never suspended.
        """
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.read-private", target_of(row))
        suspension = await self._store.get(row.id)
        if suspension is None:
            raise NotFound(f"session {row.name} was never suspended", session=row.id)
        return suspension

    async def notice(
        self,
        caller: Caller,
        key: str,
        wait_seconds: float,
        recheck: Callable[[], Awaitable[Caller]],
    ) -> PendingNotice:
        """Return the notice to a session that has to prepare for a stop (long poll).

        The result has no notice if none arrives within ``wait_seconds`` (at most
        ``MAX_WAIT_SECONDS``).
        """
        row = await self._writable(caller, key)
        if (notice := await self._notice_of(row.id)) is not None:
            return PendingNotice(notice)
        woken = asyncio.Event()
        self._waiters[row.id].add(woken)
        try:
            async with asyncio.timeout(min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)):
                await woken.wait()
        except TimeoutError:
            return PendingNotice(None)
        finally:
            self._waiters[row.id].discard(woken)
            if not self._waiters[row.id]:
                del self._waiters[row.id]
        await self._writable(await recheck(), row.id)
        return PendingNotice(await self._notice_of(row.id))

    async def report(self, caller: Caller, key: str, report: Mapping[str, Any]) -> None:
        """Store what a session has saved; the session is then stopped without further delay.

        Raises
        ------
        Conflict
            If the session is not preparing for a stop.
        """
        row = await self._writable(caller, key)
        if not await self._store.report(row.id, report_from_json(report)):
            raise Conflict(f"session {row.name} is not preparing for a stop")
        self._lifecycle.notify(row, SUSPENSION)
        self._loop.wake()

    async def step(self) -> None:
        """Pass notices, and stop, requeue or end the sessions that are due."""
        preparing = {one.session_id: one for one in await self._store.preparing()}
        for session_id in preparing.keys() & self._waiters.keys():
            # Do not wake a session that has sent its report: it waits for its next notice.
            if preparing[session_id].report is None:
                self._wake(session_id)
        if await self._lease.hold() is None:
            return
        now = self._clock()
        for one in preparing.values():
            await self._finish_preparation(one, now)
        for one in await self._store.to_requeue():
            await self._apply(one, Event.RESUMED, TextTemplate.REQUEUED.text())
        for one in await self._store.expired(now, self._retention):
            seconds = int(self._retention.total_seconds())
            text = TextTemplate.SUSPENSION_EXPIRED.text(maximum_seconds=seconds)
            await self._apply(one, Event.STOP_REQUESTED, text, result=Result.UNDEFINED)

    async def _finish_preparation(self, one: Suspension, now: datetime) -> None:
        if not is_stop_due(one.deadline, one.report is not None, now):
            return
        if one.purpose is Purpose.STOP:
            # The requester has to stop the session. If it has not done so, this preparation must
            # not block the next one.
            if now - one.deadline > ABANDONED_AFTER:
                await self._store.cancel(one.session_id)
            return
        text = TextTemplate.SUSPENDED_BY.text(name=one.requested_by)
        await self._apply(one, Event.SUSPEND_REQUESTED, text)

    async def _apply(self, one: Suspension, event: Event, text: Any, **facts: Any) -> None:
        moved = await self._lifecycle.try_apply(one.session_id, event, text, **facts)
        if moved is None and event is Event.SUSPEND_REQUESTED:
            # The session has ended in the meantime, or is ending for another reason.
            await self._store.cancel(one.session_id)

    async def _begin(
        self,
        row: SessionRow,
        deadline: datetime,
        purpose: Purpose,
        requested_by: str,
        keeps_variables: bool,
    ) -> None:
        if row.type != SessionType.INTERACTIVE:
            raise Conflict(f"only interactive sessions can be suspended; {row.name} is {row.type}")
        if row.cluster_size > 1:
            raise Conflict("sessions with several kernels cannot be suspended")
        if row.status is not Status.RUNNING:
            raise Conflict(f"session {row.name} is {row.status}, not RUNNING", status=row.status)
        is_kept = purpose is Purpose.SUSPEND
        await self._store.begin(
            Suspension(
                session_id=row.id,
                phase=Phase.PREPARING,
                purpose=purpose,
                requested_at=self._clock(),
                requested_by=requested_by[:64],
                deadline=deadline,
                keeps_variables=keeps_variables,
                suspended_at=None,
                expires_at=deadline + self._retention if is_kept else None,
                resumed_at=None,
                report=None,
            )
        )
        if purpose is not Purpose.STOP:
            template = TextTemplate.SUSPENDING_BY if is_kept else TextTemplate.REQUEUING_BY
            text = template.text(name=requested_by, ends_at=deadline.isoformat())
            await self._rows.set_status_info(row.id, text)
        self._lifecycle.notify(await self._rows.find(row.id), SUSPENSION)
        self._loop.wake()

    async def _notice_of(self, session_id: str) -> StopNotice | None:
        one = await self._store.get(session_id)
        if one is None or one.phase is not Phase.PREPARING or one.report is not None:
            return None
        left = (one.deadline - self._clock()).total_seconds()
        return StopNotice(
            one.purpose, one.requested_by, one.deadline, max(left, 0.0), one.keeps_variables
        )

    def _wake(self, session_id: str) -> None:
        for woken in self._waiters[session_id]:
            woken.set()

    async def _writable(self, caller: Caller, key: str) -> SessionRow:
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        return row

    async def _record(self, caller: Caller, action: str, row: SessionRow, **details: Any) -> None:
        entry = self._audit.entry(
            caller,
            action,
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            on_behalf_of=row.hub_user,
            name=row.name,
            **details,
        )
        await self._audit.add(entry)
