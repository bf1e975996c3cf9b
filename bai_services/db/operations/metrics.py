"""Read the state of sessions, agents, devices and mails for the metrics endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import LIVE, Status

from ..database import Database
from ..tables.cluster import agent_slots, agents, devices
from ..tables.mails import mails
from ..tables.sessions import sessions

# Maximum numbers of agents and devices in one scrape.
MAX_AGENTS = 2000
MAX_DEVICES = 10_000


@dataclass(frozen=True, slots=True)
class AgentFacts:
    id: str
    resource_group: str
    status: str
    schedulable: bool
    last_heartbeat_at: datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AgentSlot:
    agent_id: str
    slot: str
    capacity: int
    used: int


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    id: str
    agent_id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None
    is_healthy: bool
    capacity: int
    used: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MetricsFacts:
    """The current state. ``sessions``: number of live sessions by status, resource group and type.

    ``waiting_since``: since when the oldest pending session waits, by resource group. ``mails``:
    number of mails in the queue.
    """

    sessions: Mapping[tuple[str, str, str], int]
    waiting_since: Mapping[str, datetime]
    agents: Sequence[AgentFacts]
    slots: Sequence[AgentSlot]
    devices: Sequence[DeviceFacts]
    mails: int


class MetricsStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def facts(self) -> MetricsFacts:
        """Read the current state in one transaction."""
        s = sessions.c
        groups = (s.status, s.resource_group, s.type)
        counted = sa.select(*groups, sa.func.count()).where(s.status.in_(LIVE)).group_by(*groups)
        oldest = (
            sa.select(s.resource_group, sa.func.min(s.status_changed_at))
            .where(s.status == Status.PENDING)
            .group_by(s.resource_group)
        )
        chosen_agents = _columns(AgentFacts, agents).order_by(agents.c.id).limit(MAX_AGENTS)
        chosen_slots = _columns(AgentSlot, agent_slots).order_by(agent_slots.c.agent_id)
        chosen_devices = _columns(DeviceFacts, devices).order_by(devices.c.id).limit(MAX_DEVICES)
        async with self._db.read() as tx:
            return MetricsFacts(
                sessions={tuple(row[:3]): row[3] for row in await tx.execute(counted)},
                waiting_since={group: since for group, since in await tx.execute(oldest)},
                agents=[AgentFacts(*row) for row in await tx.execute(chosen_agents)],
                slots=[
                    AgentSlot(*row) for row in await tx.execute(chosen_slots.limit(2 * MAX_AGENTS))
                ],
                devices=[DeviceFacts(*row) for row in await tx.execute(chosen_devices)],
                mails=await tx.scalar(sa.select(sa.func.count()).select_from(mails)) or 0,
            )


def _columns(record: type[Any], table: sa.Table) -> sa.Select[Any]:
    return sa.select(*(table.c[name] for name in record.__dataclass_fields__))
