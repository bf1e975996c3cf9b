"""Ends what waits in vain or too long, and what runs longer than it may."""

from __future__ import annotations

from bai_services.core.durations import format_duration
from bai_services.core.sessions.batch import TIMED_OUT
from bai_services.core.sessions.dependencies import failure_reason
from bai_services.core.sessions.idle import IDLE_TIMEOUT
from bai_services.core.sessions.lifecycle import ENDED, Event, Result, Status
from bai_services.db.sessions.deadlines import DeadlineStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.rows import SessionRow

from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from .lifecycle import Lifecycle

TICK_SECONDS = 1.0
# How reasons begin; the rest is for people.
PENDING_TIMED_OUT = "PENDING_TIMEOUT_EXCEEDED"
LIFETIME_OVER = "SESSION_LIFETIME_EXCEEDED"


class Deadlines:
    """Looks every second; all that it knows is in the database.

    Only what is still as it was when it was found late is ended, and only by
    the manager that holds the lease.
    """

    def __init__(
        self,
        store: DeadlineStore,
        dependencies: DependencyStore,
        lifecycle: Lifecycle,
        clock: Clock,
        *,
        lease: Lease,
    ) -> None:
        self._lease = lease
        self._store = store
        self._dependencies = dependencies
        self._lifecycle = lifecycle
        self._clock = clock
        self._loop = Loop("deadlines", self.step, TICK_SECONDS)
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Look once at everything."""
        if await self._lease.hold() is None:
            return
        await self._cancel_in_vain()
        now = self._clock()
        for late in await self._store.waiting(now):
            await self._end(
                late.session_id,
                Status.PENDING,
                f"{PENDING_TIMED_OUT}: waited longer than {format_duration(late.seconds)}, the "
                f"most that resource group {late.limit_of} allows",
            )
        for late in await self._store.batch(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                f"{TIMED_OUT}: ran longer than {format_duration(late.seconds)}, its batch_timeout",
                Result.FAILURE,
            )
        for late in await self._store.lifetime(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                f"{LIFETIME_OVER}: ran longer than {format_duration(late.seconds)}, the most that "
                f"keypair policy {late.limit_of} allows",
                Result.FAILURE,
            )
        for late in await self._store.idle(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                f"{IDLE_TIMEOUT}: nobody used it for {format_duration(late.seconds)}, the most "
                f"that keypair policy {late.limit_of} allows",
                Result.FAILURE,
            )

    async def _cancel_in_vain(self) -> None:
        # Whoever waits for one that is cancelled here waits in vain as well.
        while found := await self._dependencies.in_vain():
            moved = [
                await self._end(session_id, Status.PENDING, failure_reason(dependency))
                for session_id, dependency in found
            ]
            if not any(moved):
                return

    async def _end(
        self, session_id: str, status: Status, reason: str, result: Result | None = None
    ) -> bool:
        """End a session that is still in that status; return whether it was."""
        if await self._lease.hold() is None:
            return False
        moved = await self._lifecycle.try_move(
            session_id, Event.STOP_REQUESTED, reason, expected=status, result=result
        )
        return moved is not None

    def _on_change(self, row: SessionRow) -> None:
        is_failed = row.status in ENDED and (
            row.status is not Status.TERMINATED or row.result != Result.SUCCESS
        )
        if is_failed:
            self._loop.wake()
