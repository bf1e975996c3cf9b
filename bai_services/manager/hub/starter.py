"""Start prepared sessions through the Hub and set them RUNNING when their servers are ready."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from bai_services import tracing
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import BaiError, Conflict, Unavailable
from bai_services.core.sessions.agent_launch import BY_AGENT, BY_MANAGER
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.db.open_work import Work
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.rows import SessionKernels, SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..scheduling.lease import Lease
from ..sessions import session_spans
from ..sessions.lifecycle import Lifecycle
from .client import HubBusy
from .servers import HubServers

log = logging.getLogger(__name__)

TICK_SECONDS = 2.0
# The manager takes over a start by the Hub if the spawner has not fetched the launch plan within
# this time.
TAKE_OVER_AFTER = timedelta(seconds=60)
MAX_FAILURES = 3
MIN_POLL_SECONDS = 0.03
MAX_POLL_SECONDS = 0.5
OUTAGE_PAUSE_SECONDS = 2.0
CONFLICT_PAUSE_SECONDS = 0.5
# Maximum number of consecutive polls in which the server is neither ready nor pending.
MAX_IDLE_POLLS = 8

# RUNNING is included because the Hub may lose the server of a container that still runs.
_STARTABLE = (Status.PREPARED, Status.RUNNING)


class Starter:
    """Runs one start task per PREPARED session that has a Hub server.

    A restarted manager restarts the tasks.

    The reconciler also begins a start task for a RUNNING session whose server the Hub has lost.
    Only the manager that holds the lease starts servers, so that no server is started twice.
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
        self._wakeups: dict[str, asyncio.Event] = {}
        self._is_drained = False
        self._loop = lease.loop("starter", self.step, TICK_SECONDS, Work.STARTER)
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
        """Begin no more starts; starts in progress continue."""
        self._is_drained = True

    async def step(self) -> None:
        """Begin a start task for every session that needs one."""
        if self._is_drained or await self._lease.hold() is None:
            return
        for row in await self._sessions.in_status(Status.PREPARED):
            if row.id in self._tasks or row.started_by == BY_AGENT:
                continue
            view = await self._sessions.with_kernels(row.id)
            if await self._is_due(view):
                self.begin(view.row)

    def begin(self, row: SessionRow) -> None:
        """Begin the start task of a session, unless it is already running."""
        if self._is_drained or row.id in self._tasks:
            return
        task = asyncio.create_task(self._start_server(row), name=f"start-{row.id}")
        self._tasks[row.id] = task
        task.add_done_callback(lambda done: self._remove_task(row.id, done))

    async def _is_due(self, view: SessionKernels) -> bool:
        """Return whether the manager must start the server; take over an overdue start."""
        kernel, row = view.kernels[0], view.row
        if kernel.container_id is not None or row.started_by == BY_MANAGER:
            return True
        is_late = self._clock() - row.status_changed_at > TAKE_OVER_AFTER
        if kernel.launched_at is None and is_late:
            self._lifecycle.notify(await self._sessions.leave_start_to_manager(row.id))
            return True
        return False

    def _remove_task(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(session_id, None)
        self._wakeups.pop(session_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the start of session %s failed", session_id, exc_info=error)

    def _on_change(self, row: SessionRow) -> None:
        if row.status is Status.PREPARED and row.started_by != BY_AGENT:
            if row.started_by == BY_MANAGER:
                self.begin(row)
            else:
                self.wake()
        if (wakeup := self._wakeups.get(row.id)) is not None:
            wakeup.set()

    async def _start_server(self, row: SessionRow) -> None:
        """Call the Hub until the server is ready, is no longer needed, or failed too often."""
        if await self._lease.hold() is None:
            return
        if not self._servers.hub.is_known:
            await self._start_without_hub(row)
            return
        # If the Hub began the start, wait for its result first. While the server is running or
        # starting, the Hub rejects a start request with a conflict.
        is_ready = await self._wait_until_ready(row) if row.started_by == "hub" else False
        reason: str | CodedText = TextTemplate.NOT_STARTED_BY_HUB.text()
        failures = 0
        # If there was no wait, ``row`` is current and is not read again.
        is_fresh = row.started_by != "hub"
        while not is_ready and failures < MAX_FAILURES and (is_fresh or await self._is_needed(row)):
            is_fresh = False
            try:
                is_ready = await self._begin_start(row) or await self._wait_until_ready(row)
                failures += not is_ready
            except HubBusy as busy:
                await self._sessions.set_status_info(
                    row.id, TextTemplate.HUB_BUSY.text(message=busy.message)
                )
                await asyncio.sleep(busy.retry_after)
            except Conflict as error:
                # The server is already running or starting, or the spawner rejected the start: poll
                # the server to find out.
                reason = error.message
                is_ready = await self._wait_until_ready(row)
                failures += not is_ready
                # After a start that the user has cancelled, the server may still be stopping.
                await asyncio.sleep(0 if is_ready else CONFLICT_PAUSE_SECONDS * failures)
            except BaiError as error:
                # An unreachable Hub does not count as a failure; the reconciler ends the session if
                # the outage lasts too long.
                reason = error.message
                failures += not isinstance(error, Unavailable) or "hub_status" in error.details
                await self._sessions.set_status_info(
                    row.id, TextTemplate.WAITING_FOR_HUB.text(message=error.message)
                )
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
        await self._conclude(row, is_ready, reason)

    async def _begin_start(self, row: SessionRow) -> bool:
        # This task may have been created in a request, but the start does not belong to the trace
        # of that request.
        parent = session_spans.context_of(row)
        if parent is None:
            return await self._servers.begin_start(row)
        hidden = (row.owner, row.hub_user)
        with tracing.span(
            "hub start", parent=parent, attributes={"bai.session.id": row.id}, hidden=hidden
        ):
            return await self._servers.begin_start(row)

    async def _conclude(self, row: SessionRow, is_ready: bool, reason: str | CodedText) -> None:
        if is_ready:
            await self._lifecycle.try_apply(row.id, Event.STARTED)
        elif await self._is_needed(row):
            view = await self._sessions.with_kernels(row.id)
            if view.kernels[0].launched_at is None:
                await self._lifecycle.try_apply(row.id, Event.FAILED, reason, result=Result.FAILURE)
            else:
                # Containers may be running: the resources are released when the agent reports the
                # end of the containers.
                await self._lifecycle.try_apply(
                    row.id, Event.STOP_REQUESTED, reason, result=Result.FAILURE
                )

    async def _start_without_hub(self, row: SessionRow) -> None:
        view = await self._sessions.with_kernels(row.id)
        if view.kernels[0].container_id is not None:
            await self._lifecycle.try_apply(row.id, Event.STARTED)

    async def _is_needed(self, row: SessionRow) -> bool:
        """Return whether this manager must still start the session's server."""
        if await self._lease.hold() is None:
            return False
        return (await self._sessions.find(row.id)).status in _STARTABLE

    async def _wait_until_ready(self, row: SessionRow) -> bool:
        """Poll the server until it is ready (True), or stopped or no longer needed (False)."""
        poll_seconds, idle_polls = MIN_POLL_SECONDS, 0
        wakeup = self._wakeups.setdefault(row.id, asyncio.Event())
        while await self._is_needed(row):
            wakeup.clear()
            try:
                model = await self._servers.server_model(row) or {}
            except Unavailable:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
                continue
            if model.get("ready"):
                return True
            idle_polls = 0 if model.get("pending") else idle_polls + 1
            if idle_polls >= MAX_IDLE_POLLS:
                return False
            try:
                async with asyncio.timeout(poll_seconds):
                    await wakeup.wait()
                # The session has changed, for instance because the spawner has reported the start:
                # poll at short intervals again.
                poll_seconds = MIN_POLL_SECONDS
            except TimeoutError:
                poll_seconds = min(poll_seconds * 1.3, MAX_POLL_SECONDS)
        return False
