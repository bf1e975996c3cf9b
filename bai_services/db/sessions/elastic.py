"""Store of elastic sessions: reads the input for decisions about their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.devices import SHARES, is_device_slot
from bai_services.core.resources import MEM, ResourceSlots
from bai_services.core.scheduling.caps import SESSIONS, Scope
from bai_services.core.scheduling.elastic.sessions import (
    ElasticSession,
    FreeAgent,
    WaitingSession,
)
from bai_services.core.scheduling.placement import AgentState
from bai_services.core.scheduling.queue import GroupState, PendingSession
from bai_services.core.scheduling.queue.explain import POLICY, RESOURCES, waits_for_capacity
from bai_services.core.scheduling.queue.restrictions import restricted
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.resizing import ResizeState

from ..database import Database
from ..scheduling.agent_states import read_agents
from ..scheduling.caps import CHUNK, read_caps, read_usage
from ..scheduling.ledger import scopes_of
from ..scheduling.queue_groups import read_groups
from ..scheduling.queue_rows import read_pending
from ..tables.budgets import project_budgets
from ..tables.resizes import elastic_sessions, session_resizes
from ..tables.sessions import allocations, kernels, sessions
from .resizes import read_withheld

# Maximum number of pending sessions of a group to consider, in queue order. It applies to the
# sessions that wait for resources and to those that wait for a quota.
_MAX_WAITING = 100
# Free memory that a shrinking elastic session keeps, as a fraction of its used memory.
_MEMORY_RESERVE = 0.1


@dataclass(frozen=True, slots=True)
class ResizedAt:
    """State of the last resize of an elastic session, and the time at which it ended or was
    requested.
    """

    state: ResizeState
    at: datetime


@dataclass(frozen=True, slots=True)
class ElasticGroup:
    """A resource group with elastic sessions, and the input for decisions about their sizes."""

    name: str
    sessions: Sequence[ElasticSession]
    agents: Sequence[FreeAgent]
    headroom: Mapping[Scope, Mapping[str, int]]
    waiting: Sequence[WaitingSession]
    resized: Mapping[str, ResizedAt]


_s, _e, _r = sessions.c, elastic_sessions.c, session_resizes.c
_ELASTIC = (
    sa.select(
        _s.id,
        _s.domain,
        _s.project_id,
        _s.owner_id,
        _s.access_key,
        _s.resource_group,
        _s.requested_slots,
        _e.minimum,
        _e.preferred,
        kernels.c.agent_id,
        kernels.c.usage,
        project_budgets.c.blocked_at.is_not(None).label("is_budget_spent"),
        _r.state,
        sa.func.coalesce(_r.finished_at, _r.requested_at).label("resized_at"),
    )
    .join_from(elastic_sessions, sessions, _e.session_id == _s.id)
    .join(kernels, kernels.c.session_id == _s.id)
    .outerjoin(session_resizes, _r.session_id == _s.id)
    .outerjoin(project_budgets, project_budgets.c.project_id == _s.project_id)
    .where(_s.status == Status.RUNNING)
    .order_by(_s.sequence)
)
_DEVICES = sa.select(allocations.c.session_id, allocations.c.slot, allocations.c.device_id).where(
    allocations.c.session_id.in_(sa.bindparam("ids", expanding=True)),
    allocations.c.freed_at.is_(None),
    allocations.c.device_id.is_not(None),
)
# A text search avoids parsing the reasons of all pending sessions.
_PENDING = (
    sa.select(_s.id, _s.reasons, _s.position, _s.sequence)
    .where(
        _s.status == Status.PENDING,
        _s.resource_group == sa.bindparam("of_group"),
        sa.cast(_s.reasons, sa.Text).contains(sa.bindparam("check", type_=sa.String)),
    )
    .order_by(_s.position, _s.sequence)
    .limit(_MAX_WAITING)
)


class ElasticStore:
    """Reads elastic sessions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def groups(self, now: datetime) -> list[ElasticGroup]:
        """Return the resource groups that have running elastic sessions."""
        async with self._db.read() as tx:
            rows = (await tx.execute(_ELASTIC)).all()
            if not rows:
                return []
            of_group: dict[str, list[Any]] = defaultdict(list)
            for row in rows:
                of_group[row.resource_group].append(row)
            devices = await _devices_of(tx, [row.id for row in rows])
            waiting = await _waiting(tx, sorted(of_group))
            states = await read_groups(tx)
            # The sessions that must not grow, because an advance reservation of their agent is for
            # others.
            withheld = await read_withheld(tx, [row.id for row in rows], now)
            return [
                await _group(
                    tx,
                    states.get(name, GroupState(name)),
                    [(row, row.id in withheld or row.is_budget_spent) for row in of_group[name]],
                    devices,
                    waiting[name],
                    now,
                )
                for name in sorted(of_group)
            ]


async def _group(
    tx: AsyncConnection,
    state: GroupState,
    sized: Sequence[tuple[Any, bool]],
    devices: Mapping[str, Mapping[str, str]],
    waiting: Sequence[PendingSession],
    now: datetime,
) -> ElasticGroup:
    """Return the input for a decision; ``sized``: pairs (row, whether growth is forbidden)."""
    agents = await read_agents(tx, [state.name])
    ids = {agent.id for agent in agents}
    elastic = [
        replace(_session(row, devices.get(row.id, {})), may_grow=not is_kept)
        for row, is_kept in sized
    ]
    scopes = {scope for one in elastic for scope in one.scopes}
    scopes |= {scope for one in waiting for scope in one.scopes}
    caps, usage = await read_caps(tx, scopes), await read_usage(tx, scopes)
    slots = {slot for one in elastic for slot in one.preferred}
    slots |= {slot for one in waiting for slot in one.request.slots} | {SESSIONS}
    headroom = {
        scope: {
            slot: limit - usage.get(scope, {}).get(slot, 0)
            for slot in slots
            if (limit := scope_caps.limit(slot)) is not None
        }
        for scope, scope_caps in caps.items()
    }
    resized = {
        row.id: ResizedAt(ResizeState(row.state), row.resized_at) for row, _ in sized if row.state
    }
    return ElasticGroup(
        state.name,
        elastic,
        [_free(agent) for agent in agents if agent.is_alive],
        headroom,
        [_waiting_session(restricted(state, ids, now, one), agents) for one in waiting],
        resized,
    )


def _session(row: Any, devices: Mapping[str, str]) -> ElasticSession:
    minimum = row.minimum
    used = (row.usage or {}).get("mem_bytes")
    if isinstance(used, int) and MEM in minimum:
        # Used memory cannot be released, so the minimum is at least the used memory and a reserve.
        least = min(row.requested_slots.get(MEM, 0), int(used * (1 + _MEMORY_RESERVE)))
        minimum = ResourceSlots({**minimum, MEM: max(minimum[MEM], least)})
    return ElasticSession(
        row.id,
        row.agent_id or "",
        scopes_of(row.domain, row.project_id, row.owner_id, row.access_key, row.resource_group),
        row.requested_slots,
        minimum,
        row.preferred,
        devices,
    )


def _free(agent: AgentState) -> FreeAgent:
    return FreeAgent(
        agent.id,
        {slot: max(0, n - agent.used.get(slot, 0)) for slot, n in agent.capacity.items()},
        {device.id: device.free for device in agent.devices},
        {device.id: device.family for device in agent.devices},
    )


def _waiting_session(pending: PendingSession, agents: Sequence[AgentState]) -> WaitingSession:
    request = pending.request
    shares = [slot for slot in request.slots if slot.endswith(f".{SHARES}")]
    others = [slot for slot in request.slots if is_device_slot(slot) and slot not in shares]
    named = set(request.designated_agents)
    return WaitingSession(
        pending.id,
        pending.scopes,
        request.slots,
        frozenset(
            agent.id
            for agent in agents
            if agent.is_alive
            and agent.is_schedulable
            and agent.architecture == request.architecture
            and (not named or agent.id in named)
        ),
        shares[0] if len(shares) == 1 else "",
        is_plain=request.kernels == 1 and len(shares) <= 1 and not others,
    )


async def _waiting(tx: AsyncConnection, groups: Sequence[str]) -> dict[str, list[PendingSession]]:
    """Return the pending sessions of each group that wait for capacity, in queue order."""
    ids: dict[str, list[str]] = {}
    for group in groups:
        rows = {
            row.id: row
            for check in (RESOURCES, POLICY)
            for row in await tx.execute(_PENDING, {"of_group": group, "check": f'"{check}"'})
            if waits_for_capacity(row.reasons)
        }
        ids[group] = [row.id for row in sorted(rows.values(), key=_in_queue)]
    found = {p.id: p for p in await read_pending(tx, [key for of in ids.values() for key in of])}
    return {name: [found[key] for key in of if key in found] for name, of in ids.items()}


def _in_queue(row: Any) -> tuple[bool, int, int]:
    """Return the sort key of the queue; sessions without a position come last."""
    return row.position is None, row.position or 0, row.sequence


async def _devices_of(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, by session, the device of each share slot."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for start in range(0, len(ids), CHUNK):
        for row in await tx.execute(_DEVICES, {"ids": ids[start : start + CHUNK]}):
            found[row.session_id][row.slot] = row.device_id
    return found
