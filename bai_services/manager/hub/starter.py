"""Starts prepared sessions through the Hub and sets them RUNNING once the Hub is ready."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from bai_services.core.errors import BaiError, Conflict, Unavailable
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.rows import SessionKernels, SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from .client import HubBusy
from .servers import HubServers

log = logging.getLogger(__name__)

TICK_SECONDS = 2.0
# A start that the Hub began, but whose launch plan it never fetched, is taken over after this time.
TAKE_OVER = timedelta(seconds=60)
TRIES = 3
FIRST_LOOK_SECONDS = 0.03
MAX_LOOK_SECONDS = 0.5
AWAY_SECONDS = 2.0
PAUSE_SECONDS = 0.5
# Give up after this many checks in a row in which the Hub neither runs nor starts the server.
IDLE_LOOKS = 8

# RUNNING: the Hub lost the server of a session whose container still runs.
_STARTABLE = (Status.PREPARED, Status.RUNNING)


class Starter:
    """One task per PREPARED session; all of them are found again after a restart.

    Only the manager that holds the lease starts servers; two managers would start one twice.
    """

    def __init__(
        self,
        sessions: SessionStore,
        kernels: KernelStore,
        servers: HubServers,
        lifecycle: Lifecycle,
        clock: Clock,
        *,
        lease: Lease,
    ) -> None:
        self._lease = lease
        self._sessions = sessions
        self._kernels = kernels
        self._servers = servers
        self._lifecycle = lifecycle
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nudges: dict[str, asyncio.Event] = {}
        self._is_drained = False
        self._loop = Loop("starter", self.step, TICK_SECONDS)
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        self._loop.wake()

    def drain(self) -> None:
        """Begin no more starts; those that have begun continue."""
        self._is_drained = True

    async def step(self) -> None:
        """Begin tasks for the sessions that need one."""
        if self._is_drained or await self._lease.hold() is None:
            return
        for row in await self._sessions.in_status(Status.PREPARED):
            if row.id in self._tasks:
                continue
            view = await self._sessions.with_kernels(row.id)
            if await self._is_due(view):
                self.begin(view.row)

    def begin(self, row: SessionRow) -> None:
        """Begin the task that starts a session's server; one per session at a time."""
        if self._is_drained or row.id in self._tasks:
            return
        task = asyncio.create_task(self._bring_up(row), name=f"start-{row.id}")
        self._tasks[row.id] = task
        task.add_done_callback(lambda done: self._forget(row.id, done))

    async def _is_due(self, view: SessionKernels) -> bool:
        kernel, row = view.kernels[0], view.row
        if kernel.container_id is not None or row.started_by == "manager":
            return True
        is_late = self._clock() - row.status_changed_at > TAKE_OVER
        if kernel.launched_at is None and is_late:
            self._lifecycle.tell(await self._sessions.hand_over(row.id))
            return True
        return False

    def _forget(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(session_id, None)
        self._nudges.pop(session_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the start of session %s failed", session_id, exc_info=error)

    def _on_change(self, row: SessionRow) -> None:
        if row.status is Status.PREPARED:
            if row.started_by == "manager":
                self.begin(row)
            else:
                self.wake()
        if (nudge := self._nudges.get(row.id)) is not None:
            nudge.set()

    async def _bring_up(self, row: SessionRow) -> None:
        """Call the Hub until the server is ready, the session's status changed, or all tries
        are used.
        """
        if await self._lease.hold() is None:
            return
        if not self._servers.hub.is_known:
            await self._without_hub(row)
            return
        # A start begun by the Hub itself is only watched. One of ours is requested: if the server
        # is running or starting already, the Hub answers so.
        is_ready = await self._settled(row) if row.started_by == "hub" else False
        reason, failures = "the Hub could not start it", 0
        is_fresh = row.started_by != "hub"  # it was read just now
        while not is_ready and failures < TRIES and (is_fresh or await self._is_wanted(row)):
            is_fresh = False
            try:
                is_ready = await self._servers.begin_start(row) or await self._settled(row)
                failures += not is_ready
            except HubBusy as busy:
                await self._sessions.set_status_info(row.id, f"the Hub is busy; {busy.message}")
                await asyncio.sleep(busy.retry_after)
            except Conflict as error:
                # It is running or starting already, or the spawner refused: the server's state
                # tells which.
                reason = error.message
                is_ready = await self._settled(row)
                failures += not is_ready
                # A start that the user cancelled takes a moment to end in the Hub.
                await asyncio.sleep(0 if is_ready else PAUSE_SECONDS * failures)
            except BaiError as error:
                # An unavailable Hub is waited for, until the limit on stuck sessions.
                reason = error.message
                failures += not isinstance(error, Unavailable) or "hub_status" in error.details
                await self._sessions.set_status_info(
                    row.id, f"waiting for the Hub: {error.message}"
                )
                await asyncio.sleep(AWAY_SECONDS)
        await self._conclude(row, is_ready, reason)

    async def _conclude(self, row: SessionRow, is_ready: bool, reason: str) -> None:
        if is_ready:
            await self._lifecycle.try_move(row.id, Event.STARTED)
        elif await self._is_wanted(row):
            view = await self._sessions.with_kernels(row.id)
            if view.kernels[0].launched_at is None:
                await self._lifecycle.try_move(row.id, Event.FAILED, reason, result=Result.FAILURE)
            else:
                # Some of it may be running: its resources are released when the agent reports that
                # it is gone.
                await self._lifecycle.try_move(
                    row.id, Event.STOP_REQUESTED, reason, result=Result.FAILURE
                )

    async def _without_hub(self, row: SessionRow) -> None:
        view = await self._sessions.with_kernels(row.id)
        if view.kernels[0].container_id is not None:
            await self._lifecycle.try_move(row.id, Event.STARTED)

    async def _is_wanted(self, row: SessionRow) -> bool:
        """Return whether its server is still to be started, and by this manager."""
        if await self._lease.hold() is None:
            return False
        return (await self._sessions.find(row.id)).status in _STARTABLE

    async def _settled(self, row: SessionRow) -> bool:
        """Watch the Hub's server until it is ready (True), or stopped or no longer wanted
        (False).
        """
        look, idle = FIRST_LOOK_SECONDS, 0
        nudge = self._nudges.setdefault(row.id, asyncio.Event())
        while await self._is_wanted(row):
            nudge.clear()
            try:
                model = await self._servers.model(row) or {}
            except Unavailable:
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if model.get("ready"):
                return True
            idle = 0 if model.get("pending") else idle + 1
            if idle >= IDLE_LOOKS:
                return False
            try:
                async with asyncio.timeout(look):
                    await nudge.wait()
                # The spawner has reported the start, so the Hub is ready within moments.
                look = FIRST_LOOK_SECONDS
            except TimeoutError:
                look = min(look * 1.3, MAX_LOOK_SECONDS)
        return False
