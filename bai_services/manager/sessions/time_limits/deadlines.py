"""Enforce time limits of sessions.

Sessions that can never start or are pending too long are cancelled; sessions that run or are idle
too long are stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.sessions.dependencies import failure_reason
from bai_services.core.sessions.lifecycle import ENDED, Event, Result, Status
from bai_services.db.open_work import Work
from bai_services.db.sessions.deadlines import DeadlineStore, Overdue
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.rows import SessionRow

from ...clock import Clock
from ...scheduling.lease import Lease
from ..lifecycle import Lifecycle
from ..planned_stops import PlannedStops

TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Limit:
    """A time limit: the query for expired sessions, their required status, and how they end.

    The values of ``reason`` are ``maximum_seconds`` and ``name``, the name of the resource group or
    policy that sets the maximum.
    """

    find: Callable[[datetime], Awaitable[Sequence[Overdue]]]
    status: Status
    reason: TextTemplate
    result: Result | None


class Deadlines:
    """Checks all limits every ``TICK_SECONDS`` while this manager holds the lease.

    A session is ended only if its status has not changed since the query.
    """

    def __init__(
        self,
        store: DeadlineStore,
        dependencies: DependencyStore,
        lifecycle: Lifecycle,
        stops: PlannedStops,
        clock: Clock,
        *,
        lease: Lease,
    ) -> None:
        self._lease = lease
        self._limits = (
            _Limit(
                store.pending,
                Status.PENDING,
                TextTemplate.PENDING_TIMEOUT,
                None,
            ),
            _Limit(
                store.batch,
                Status.RUNNING,
                TextTemplate.BATCH_TIMEOUT,
                Result.FAILURE,
            ),
            _Limit(
                store.lifetime,
                Status.RUNNING,
                TextTemplate.LIFETIME,
                Result.FAILURE,
            ),
            _Limit(
                store.idle,
                Status.RUNNING,
                TextTemplate.IDLE_TIMEOUT,
                Result.FAILURE,
            ),
        )
        self._dependencies = dependencies
        self._lifecycle = lifecycle
        self._stops = stops
        self._clock = clock
        self._loop = lease.loop("deadlines", self.step, TICK_SECONDS, Work.DEADLINES)
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Check all limits once."""
        if await self._lease.hold() is None:
            return
        await self._cancel_unsatisfiable()
        now = self._clock()
        for limit in self._limits:
            for expired in await limit.find(now):
                reason = limit.reason.text(maximum_seconds=expired.seconds, name=expired.limit_of)
                if expired.added_seconds:
                    reason = TextTemplate.LIFETIME_EXTENDED.text(
                        maximum_seconds=expired.seconds,
                        name=expired.limit_of,
                        added_seconds=expired.added_seconds,
                    )
                event = Event.SUSPENDED if expired.has_home else Event.STOP_REQUESTED
                await self._end(expired.session_id, limit.status, reason, limit.result, event)

    async def _cancel_unsatisfiable(self) -> None:
        # Repeat, because dependents of a cancelled session then also become unsatisfiable.
        while unsatisfiable := await self._dependencies.pending_with_failed_dependency():
            moved = [
                await self._end(session_id, Status.PENDING, failure_reason(dependency))
                for session_id, dependency in unsatisfiable
            ]
            if not any(moved):
                return

    async def _end(
        self,
        session_id: str,
        status: Status,
        reason: CodedText,
        result: Result | None = None,
        event: Event = Event.STOP_REQUESTED,
    ) -> bool:
        """End a session if it is still in ``status``; return whether it was ended."""
        if await self._lease.hold() is None:
            return False
        return await self._stops.stop(
            session_id, reason, result=result, expected=status, event=event
        )

    def _on_change(self, row: SessionRow) -> None:
        is_failed = row.status in ENDED and (
            row.status is not Status.TERMINATED or row.result != Result.SUCCESS
        )
        if is_failed:
            self._loop.wake()
