"""Sessions with a kernel on a lost agent: wait for the agent, requeue the session, or end it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import BaiError
from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.core.sessions.lost_agents import (
    FENCE_MARGIN_SECONDS,
    Action,
    KernelOnAgent,
    LostAgentOptions,
    action_for,
    has_stopped,
)
from bai_services.db.open_work import Work
from bai_services.db.sessions.lost_agents import (
    SILENT_CODES,
    AgentOfKernel,
    LostAgentStore,
    SessionOnLostAgent,
)
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..cluster.heartbeat_times import HeartbeatTimes
from ..scheduling.lease import Lease
from ..sessions.kernels import Kernels
from ..sessions.lifecycle import PROGRESS, Lifecycle
from ..sessions.lost_kernels import LostKernels
from .servers import HubServers

TICK_SECONDS = 1.0


class LostAgents:
    """Checks the sessions on lost agents every second while this manager holds the lease.

    All actions are idempotent.
    """

    def __init__(
        self,
        store: LostAgentStore,
        sessions: SessionStore,
        *,
        lost: LostKernels,
        kernels: Kernels,
        servers: HubServers,
        lifecycle: Lifecycle,
        times: HeartbeatTimes,
        clock: Clock,
        lease: Lease,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._lost = lost
        self._kernels = kernels
        self._servers = servers
        self._lifecycle = lifecycle
        self._times = times
        self._clock = clock
        self._lease = lease
        # False: no session has a status text about a silent agent, so there is none to clear.
        self._may_be_marked = True
        self._loop = lease.loop("lost agents", self.step, TICK_SECONDS, Work.LOST_AGENTS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Take the next action for each session on a lost agent."""
        if await self._lease.hold() is None:
            self._may_be_marked = True
            return
        now, found = self._clock(), await self._store.sessions()
        for one in found:
            await self._continue(one, now)
        if self._may_be_marked:
            waiting = {one.row.id for one in found}
            for row in await self._store.with_silent_agent():
                if row.id not in waiting:
                    await self._mark(row, "")
        self._may_be_marked = bool(found)

    async def _continue(self, one: SessionOnLostAgent, now: datetime) -> None:
        options = GroupOptions.of(one.group_options).lost_agents
        states = [self._state(one.row.id, kernel, now) for kernel in one.kernels]
        action = action_for(one.row.status, states, options.wait_seconds)
        names = ", ".join(sorted({kernel.agent_id for kernel in one.kernels if kernel.is_lost}))
        row = one.row
        if action is Action.DISPLACE:
            await self._apply(row.id, Event.DISPLACED, TextTemplate.DISPLACED.text())
        elif action is Action.REQUEUE:
            if await self._lease.hold() is not None:
                await self._lost.requeue(row.id, names)
                self._loop.wake()
        elif action is Action.FINISH:
            await self._finish(row)
        elif action is Action.FAIL:
            text = TextTemplate.AGENT_LOST.text(minutes=options.wait_seconds // 60)
            await self._apply(row.id, Event.FAILED, text, result=Result.FAILURE)
        elif row.status is not Status.TERMINATING:
            waiting = _waiting_text(one, options, names)
            if waiting is not None:
                await self._mark(row, waiting)

    def _state(self, session_id: str, kernel: AgentOfKernel, now: datetime) -> KernelOnAgent:
        if not kernel.is_lost:
            return KernelOnAgent(False, self._kernels.is_removed(session_id, kernel.kernel_id))
        silent = self._times.silent_seconds(kernel.agent_id, kernel.last_heartbeat_at)
        return KernelOnAgent(
            is_lost=True,
            has_stopped=has_stopped(kernel.agent_status, silent, kernel.fence_seconds),
            lost_seconds=(now - kernel.status_changed_at).total_seconds(),
        )

    async def _finish(self, row: SessionRow) -> None:
        """End a stopped session, or requeue it, after the Hub has stopped its server.

        If the session restarted while the old server was still running, the Hub would report that
        server as ready.
        """
        if row.started_by != BY_AGENT and self._servers.hub.is_known:
            try:
                model = await self._servers.server_model(row)
            except BaiError:
                return
            if model is not None and (model.get("ready") or model.get("pending")):
                self._servers.remove(row)
                return
        await self._apply(row.id, Event.EXITED, TextTemplate.STOPPED.text())

    async def _apply(self, session_id: str, event: Event, reason: CodedText, **facts: Any) -> None:
        # Check the lease again: if this process was suspended after it had read the rows, another
        # manager may hold the lease now.
        if await self._lease.hold() is not None:
            await self._lifecycle.try_apply(session_id, event, reason, **facts)

    async def _mark(self, row: SessionRow, text: str | CodedText) -> None:
        """Set the status text, but never overwrite one that is not about a silent agent."""
        is_own = (row.status_coded or {}).get("code") in SILENT_CODES
        if row.status_info != str(text) and (is_own or not row.status_info):
            await self._sessions.set_status_info(row.id, text)
            self._lifecycle.notify(await self._sessions.find(row.id), PROGRESS)


def _waiting_text(
    one: SessionOnLostAgent, options: LostAgentOptions, names: str
) -> CodedText | None:
    """Return the status text with the time at which the wait ends.

    None if no agent is silent, because all of them have signed off.
    """
    silent = [kernel for kernel in one.kernels if kernel.agent_status == AgentStatus.LOST]
    if not silent:
        return None
    first = min(silent, key=lambda kernel: kernel.last_heartbeat_at)
    fences = [kernel.fence_seconds for kernel in one.kernels if kernel.is_lost]
    if None in fences:
        template = TextTemplate.AGENT_SILENT
        ends_at = first.status_changed_at + timedelta(seconds=options.wait_seconds)
    else:
        template = TextTemplate.AGENT_SILENT_REQUEUE
        seconds = (first.fence_seconds or 0) + FENCE_MARGIN_SECONDS
        ends_at = first.last_heartbeat_at + timedelta(seconds=seconds)
    return template.text(
        name=names, last_at=first.last_heartbeat_at.isoformat(), ends_at=ends_at.isoformat()
    )
