"""Store of sessions with a kernel on an agent that is not alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.lifecycle import OCCUPYING, Event

from ..database import Database
from ..scheduling.caps import CHUNK
from ..tables.cluster import agents, resource_groups
from ..tables.sessions import kernels, sessions, status_history
from .rows import SELECT, SessionRow, read_rows, row_of

SILENT_CODES = (TextTemplate.AGENT_SILENT.code, TextTemplate.AGENT_SILENT_REQUEUE.code)


@dataclass(frozen=True, slots=True)
class AgentOfKernel:
    """A kernel with the state of its agent."""

    kernel_id: str
    fence_seconds: int | None
    agent_id: str
    agent_status: str
    status_changed_at: datetime
    last_heartbeat_at: datetime

    @property
    def is_lost(self) -> bool:
        return self.agent_status != AgentStatus.ALIVE


@dataclass(frozen=True, slots=True)
class SessionOnLostAgent:
    """A session, its kernels, and the options of its resource group."""

    row: SessionRow
    kernels: Sequence[AgentOfKernel]
    group_options: Mapping[str, Any]


_NOT_ALIVE = sa.select(agents.c.id).where(agents.c.status != AgentStatus.ALIVE)
_ON_LOST_AGENTS = SELECT.where(
    sessions.c.status.in_(sorted(OCCUPYING)),
    sessions.c.id.in_(sa.select(kernels.c.session_id).where(kernels.c.agent_id.in_(_NOT_ALIVE))),
).order_by(sessions.c.sequence)
_KERNELS = (
    sa.select(
        kernels.c.session_id,
        kernels.c.id.label("kernel_id"),
        kernels.c.fence_seconds,
        agents.c.id.label("agent_id"),
        agents.c.status.label("agent_status"),
        agents.c.status_changed_at,
        agents.c.last_heartbeat_at,
    )
    .join_from(kernels, agents, kernels.c.agent_id == agents.c.id)
    .where(kernels.c.session_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(kernels.c.session_id, kernels.c.index)
)
_OPTIONS = sa.select(resource_groups.c.name, resource_groups.c.scheduler_opts)


class LostAgentStore:
    """Reads sessions on lost agents. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def sessions(self) -> list[SessionOnLostAgent]:
        """Return the sessions with resources that have a kernel on a lost agent, oldest first."""
        async with self._db.read() as tx:
            # Usually all agents are alive, so check this first with a cheap query.
            if (await tx.execute(_NOT_ALIVE.limit(1))).first() is None:
                return []
            rows = [row_of(row) for row in await tx.execute(_ON_LOST_AGENTS)]
            if not rows:
                return []
            ids = [row.id for row in rows]
            of_session: dict[str, list[AgentOfKernel]] = defaultdict(list)
            for start in range(0, len(ids), CHUNK):
                chunk = {"ids": ids[start : start + CHUNK]}
                for kernel in (await tx.execute(_KERNELS, chunk)).mappings():
                    values = dict(kernel)
                    of_session[values.pop("session_id")].append(AgentOfKernel(**values))
            options = {row.name: row.scheduler_opts or {} for row in await tx.execute(_OPTIONS)}
        return [
            SessionOnLostAgent(row, of_session[row.id], options.get(row.resource_group, {}))
            for row in rows
        ]

    async def group_options(self, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """Return the options of resource groups by name."""
        async with self._db.read() as tx:
            rows = await tx.execute(_OPTIONS.where(resource_groups.c.name.in_(names)))
            return {row.name: row.scheduler_opts or {} for row in rows}

    async def with_silent_agent(self) -> list[SessionRow]:
        """Return the sessions whose status text says that their agent is silent."""
        code = sessions.c.status_coded["code"].as_string()
        async with self._db.read() as tx:
            return await read_rows(
                tx, sessions.c.status.in_(sorted(OCCUPYING)), code.in_(SILENT_CODES)
            )

    async def lost_count(self, session_id: str) -> int:
        """Return how often a session was requeued because an agent was lost."""
        count = sa.select(sa.func.count()).where(
            status_history.c.session_id == session_id,
            status_history.c.event == Event.AGENT_LOST,
        )
        async with self._db.read() as tx:
            return int(await tx.scalar(count) or 0)

    async def fenced_agents(self, session_id: str, at: datetime) -> list[str]:
        """Return the agents of a session that have sent no heartbeat for ``fence_seconds`` of
        their kernel.
        """
        select = _KERNELS.where(kernels.c.fence_seconds.is_not(None))
        async with self._db.read() as tx:
            rows = await tx.execute(select, {"ids": [session_id]})
            return sorted(
                {
                    row.agent_id
                    for row in rows
                    if (at - row.last_heartbeat_at).total_seconds() >= row.fence_seconds
                }
            )
