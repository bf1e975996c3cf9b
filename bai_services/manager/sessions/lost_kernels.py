"""Batch sessions whose kernel was stopped because its agent could not reach the manager."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.lifecycle import Event, Result, SessionType, Status
from bai_services.core.sessions.lost_agents import MAX_LOST_AGENTS
from bai_services.db.sessions.lost_agents import LostAgentStore
from bai_services.db.sessions.rows import SessionRow

from ..audit import Audit
from ..clock import Clock
from .lifecycle import Lifecycle


class LostKernels:
    """Computes fence times of batch kernels, and requeues batch sessions that have lost agents."""

    def __init__(
        self,
        store: LostAgentStore,
        lifecycle: Lifecycle,
        clock: Clock,
        audit: Audit,
        deadline_seconds: int,
    ) -> None:
        """``deadline_seconds``: the deadline of heartbeats."""
        self._store = store
        self._lifecycle = lifecycle
        self._clock = clock
        self._audit = audit
        self._deadline_seconds = deadline_seconds

    async def fence_seconds(self, rows: Sequence[SessionRow]) -> dict[str, int]:
        """Return ``fence_seconds`` by session id, without sessions whose kernels are never fenced.

        A later change of the group's options does not apply to these kernels.
        """
        batch = [row for row in rows if row.type == SessionType.BATCH]
        if not batch:
            return {}
        options = await self._store.group_options({row.resource_group for row in batch})
        found: dict[str, int] = {}
        for row in batch:
            lost = GroupOptions.of(options.get(row.resource_group, {})).lost_agents
            if (seconds := lost.fence_seconds(row.type, self._deadline_seconds)) is not None:
                found[row.id] = seconds
        return found

    async def requeue(self, session_id: str, agents: str) -> SessionRow | None:
        """Stop the other kernels of a session, which then returns to the queue.

        ``agents``: names of the lost agents. A session that has lost agents too often ends instead.
        Return None if the session is not PREPARED or RUNNING.
        """
        count = await self._store.lost_count(session_id) + 1
        if count > MAX_LOST_AGENTS:
            text = TextTemplate.AGENTS_LOST_OFTEN.text(count=count, name=agents)
            return await self._lifecycle.try_apply(
                session_id, Event.AGENT_LOST, text, result=Result.FAILURE
            )
        text = TextTemplate.AGENT_LOST_REQUEUED.text(name=agents)
        row = await self._lifecycle.try_apply(
            session_id, Event.AGENT_LOST, text, is_requeued_at_end=True
        )
        if row is not None:
            entry = self._audit.system(
                "session.requeue",
                row.id,
                domain=row.domain,
                owner_id=row.owner_id,
                name=row.name,
                lost_agents=agents,
            )
            await self._audit.add(entry)
        return row

    async def requeue_if_fenced(self, row: SessionRow, end: SessionEnd) -> SessionRow | None:
        """Requeue a batch session whose reported end was a fence; otherwise, return None.

        The Hub can detect the stopped kernel before the agent's next heartbeat reaches the manager.
        """
        is_exit = end.reason is not EndReason.STOPPED and end.exit_code != 0
        if row.type != SessionType.BATCH or row.status not in _LAUNCHED or not is_exit:
            return None
        silent = await self._store.fenced_agents(row.id, self._clock())
        return await self.requeue(row.id, ", ".join(silent)) if silent else None


_LAUNCHED = (Status.PREPARED, Status.RUNNING)
