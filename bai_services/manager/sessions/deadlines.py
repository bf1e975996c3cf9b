"""Time limits: end sessions that wait in vain or too long, run too long, or are idle."""

from __future__ import annotations

from bai_services.core.durations import format_duration
from bai_services.core.sessions.dependencies import failure_reason
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.lifecycle import ENDED, Event, Result, Status
from bai_services.db.sessions.deadlines import DeadlineStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.rows import SessionRow

from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from .lifecycle import Lifecycle

TICK_SECONDS = 1.0


class Deadlines:
    """Checks every second; all its state is in the database.

    A session is ended only if its status has not changed since it was found late, and only by the
    manager that holds the lease.
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
        """Check all limits once."""
        if await self._lease.hold() is None:
            return
        await self._cancel_unsatisfiable()
        now = self._clock()
        for late in await self._store.waiting(now):
            await self._end(
                late.session_id,
                Status.PENDING,
                EndReason.PENDING_TIMEOUT.explained(
                    f"waited longer than {format_duration(late.seconds)}, the "
                    f"most that resource group {late.limit_of} allows"
                ),
            )
        for late in await self._store.batch(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                EndReason.BATCH_TIMEOUT.explained(
                    f"ran longer than {format_duration(late.seconds)}, its batch_timeout"
                ),
                Result.FAILURE,
            )
        for late in await self._store.lifetime(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                EndReason.LIFETIME.explained(
                    f"ran longer than {format_duration(late.seconds)}, the most that "
                    f"keypair policy {late.limit_of} allows"
                ),
                Result.FAILURE,
            )
        for late in await self._store.idle(now):
            await self._end(
                late.session_id,
                Status.RUNNING,
                EndReason.IDLE_TIMEOUT.explained(
                    f"unused for {format_duration(late.seconds)}, the most "
                    f"that keypair policy {late.limit_of} allows"
                ),
                Result.FAILURE,
            )

    async def _cancel_unsatisfiable(self) -> None:
        # Sessions that depend on one cancelled here can never start either.
        while found := await self._dependencies.pending_with_failed_dependency():
            moved = [
                await self._end(session_id, Status.PENDING, failure_reason(dependency))
                for session_id, dependency in found
            ]
            if not any(moved):
                return

    async def _end(
        self, session_id: str, status: Status, reason: str, result: Result | None = None
    ) -> bool:
        """End a session if it is still in that status; return whether it was ended."""
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
