"""Store of agents: heartbeats, capacity, usage and devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.cluster.protocol import PROTOCOL
from bai_services.core.cluster.records import AgentFields
from bai_services.core.counts import counted
from bai_services.core.errors import InUse, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.component_settings import ComponentKind, ReportedSetting
from bai_services.core.sessions.lifecycle import OCCUPYING, SessionType

from ..audit import record
from ..database import Database
from ..integrity import insert_new
from ..listing import Listing
from ..operations.component_settings import remove_settings, replace_settings
from ..records import records
from ..tables.cluster import agent_credentials, agent_slots, agents, devices, resource_groups
from ..tables.sessions import allocations, kernels, sessions
from .agent_devices import (
    DeviceChanges,
    NewDevice,
    changed_agents,
    write_devices,
    write_slots,
)
from .device_rows import DeviceRow, ListedDeviceRow
from .resource_groups import GroupFilter, usable_by
from .shares_in_force import with_shares_in_force

_LISTING = Listing(
    columns={c.name: c for c in agents.columns if not isinstance(c.type, sa.JSON)},
    default_sort=("id",),
)
_DEVICES = sa.select(devices, agents.c.resource_group, agents.c.status).join_from(
    devices, agents, devices.c.agent_id == agents.c.id
)
_DEVICE_LISTING = Listing(
    columns={
        **{c.name: c for c in devices.columns if not isinstance(c.type, sa.JSON)},
        "resource_group": agents.c.resource_group,
        "status": agents.c.status,
    },
    default_sort=("agent_id", "family", "index", "id"),
)


@dataclass(frozen=True, slots=True)
class AgentHeartbeat:
    """Facts and capacity of an agent; ``slots`` are the capacities of cpu and mem."""

    resource_group: str
    engine: str
    endpoint: str
    architecture: str
    version: str
    facts: Mapping[str, Any]
    slots: Mapping[str, int]
    devices: Sequence[NewDevice] = ()
    is_leaving: bool = False
    # None: unchanged since the last heartbeat.
    settings: Sequence[ReportedSetting] | None = None
    protocol: int = PROTOCOL
    storage_problems: Mapping[str, str] = field(default_factory=dict)
    is_network_full: bool = False


@dataclass(frozen=True, slots=True)
class RecordedHeartbeat:
    """A heartbeat that is stored, with the resource group of its agent, the group's engine, and
    the endpoint in force.
    """

    beat: AgentHeartbeat
    group: str
    group_engine: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """Changes made by a heartbeat.

    ``before`` is the status before the heartbeat, None for a new agent. ``refused`` contains the
    ids of the reported devices that belong to other agents. ``storage_changed``: the set of storage
    hosts that work on the machine has changed.
    """

    is_new: bool
    capacity_increased: bool
    status: AgentStatus
    before: AgentStatus | None = None
    refused: tuple[str, ...] = field(default_factory=tuple)
    recorded: RecordedHeartbeat | None = None
    storage_changed: bool = False
    network_changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow(AgentFields):
    """An agent with ``capacity`` and ``used`` of cpu and mem, devices, and number of kernels."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    devices: Sequence[DeviceRow] = ()
    kernels: int = 0


@dataclass(frozen=True, slots=True)
class RepeatedHeartbeat:
    """A heartbeat that differs from the recorded one only in facts."""

    agent_id: str
    beat: AgentHeartbeat
    at: datetime
    recorded: RecordedHeartbeat


class AgentStore:
    """Reads and writes agents. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def record_heartbeat(
        self, agent_id: str, beat: AgentHeartbeat, at: datetime
    ) -> HeartbeatResult:
        """Store a heartbeat; create an unknown agent in the reported resource group.

        A known agent stays in its stored group, which an administrator may have assigned. An agent
        that has joined with an invitation is created in the group of the invitation. It keeps the
        endpoint of its first heartbeat. The Hub creates containers there, so an agent must not be
        able to direct the Hub to the engine of another machine. Usage is not changed, so capacity
        may drop below usage. For changes of devices, see ``write_devices``.

        Raises
        ------
        NotFound
            If the resource group of a new agent does not exist.
        """
        status = AgentStatus.TERMINATED if beat.is_leaving else AgentStatus.ALIVE
        async with self._db.write() as tx:
            known = await _lock(tx, agent_id)
            endpoint = beat.endpoint
            if known is not None:
                group, engine = known["resource_group"], known["group_engine"]
                endpoint = known["endpoint"] if known["is_joined"] else endpoint
            else:
                group = await _group_of(tx, agent_id, beat)
                engine = await tx.scalar(
                    sa.select(resource_groups.c.engine).where(resource_groups.c.name == group)
                )
            if engine is None:
                raise NotFound(
                    f"there is no resource group {group!r} that agent {agent_id} could join; "
                    f"create it first or start the agent with another group",
                    name=group,
                )
            recorded = RecordedHeartbeat(beat, group, engine, endpoint)
            values = _values(recorded, status, at)
            new = {
                "id": agent_id,
                "created_at": at,
                "resource_group": group,
                "schedulable": True,
                "status_changed_at": at,
                **values,
            }
            if known is None and not await insert_new(tx, agents, new):
                # Another heartbeat has just created the agent: update it like a known agent.
                known = await _lock(tx, agent_id)
            if known is not None:
                if known["status"] != status:
                    values["status_changed_at"] = at
                await tx.execute(agents.update().where(agents.c.id == agent_id).values(values))
            grown = await write_slots(tx, agent_id, beat.slots)
            device_changes = await write_devices(tx, agent_id, beat.devices)
            if beat.settings is not None:
                await replace_settings(tx, ComponentKind.AGENT, agent_id, beat.settings)
        return _heartbeat_result(known, status, grown, device_changes, recorded)

    async def record_repeated(
        self, beats: Sequence[RepeatedHeartbeat], compared: Collection[str] = ()
    ) -> set[str]:
        """Store the facts of heartbeats (one per agent); return the ids of the updated agents.

        Agents that have changed in the database are omitted; use ``record_heartbeat`` for them.
        ``compared``: ids of agents whose slots and devices must also be compared with the database.
        """
        async with self._db.write() as tx:
            found = await tx.execute(_LOCK_ALL, {"ids": sorted(one.agent_id for one in beats)})
            known = {row.id: tuple(row)[1:] for row in found}
            current = [one for one in beats if known.get(one.agent_id) == _expected(one)]
            if compared:
                changed = await changed_agents(
                    tx,
                    {
                        one.agent_id: (one.recorded.beat.slots, one.recorded.beat.devices)
                        for one in current
                        if one.agent_id in compared
                    },
                )
                current = [one for one in current if one.agent_id not in changed]
            if current:
                await tx.execute(_REPEAT, [_repeated_values(one) for one in current])
            devices_changed = [
                {"key": device.id, "of_agent": one.agent_id, "facts": dict(device.facts)}
                for one in current
                for device, before in zip(one.beat.devices, one.recorded.beat.devices, strict=True)
                if device.facts != before.facts
            ]
            if devices_changed:
                await tx.execute(_REPEAT_DEVICE, devices_changed)
        return {one.agent_id for one in current}

    async def mark_lost(
        self, agent_ids: Collection[str], before: datetime, at: datetime
    ) -> list[str]:
        """Mark agents as LOST, except those with a heartbeat since ``before``; return their ids."""
        async with self._db.write() as tx:
            lost = await tx.execute(
                agents.update()
                .where(
                    agents.c.id.in_(agent_ids),
                    agents.c.status == AgentStatus.ALIVE,
                    agents.c.last_heartbeat_at < before,
                )
                .values(status=AgentStatus.LOST, status_changed_at=at)
                .returning(agents.c.id)
            )
            return sorted(lost.scalars())

    async def silent(self, since: datetime) -> dict[str, datetime]:
        """Return the times of the last heartbeats of agents that are ALIVE and have sent none
        after ``since``.
        """
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(agents.c.id, agents.c.last_heartbeat_at).where(
                    agents.c.status == AgentStatus.ALIVE, agents.c.last_heartbeat_at < since
                )
            )
            return {row.id: row.last_heartbeat_at for row in rows}

    async def page(self, query: ListQuery) -> Page[AgentRow]:
        async with self._db.read() as tx:
            page = await _LISTING.page(tx, sa.select(agents), query, AgentRow)
            return page.with_items(await _complete(tx, page.items))

    async def page_for(self, query: ListQuery, user: GroupFilter | None) -> Page[AgentRow]:
        """Return the agents of the active groups that a user may use for sessions.

        If ``user`` is None, all active groups are considered. Groups that allow only system
        sessions, such as file transfers, are omitted.
        """
        async with self._db.read() as tx:
            groups = await tx.execute(
                sa.select(resource_groups.c.name, resource_groups.c.allowed_session_types).where(
                    resource_groups.c.is_active, sa.true() if user is None else usable_by(user)
                )
            )
            names = [name for name, types in groups if set(types) - {SessionType.SYSTEM}]
            rows = sa.select(agents).where(agents.c.resource_group.in_(names))
            page = await _LISTING.page(tx, rows, query, AgentRow)
            return page.with_items(await _complete(tx, page.items))

    async def alive(self) -> list[AgentRow]:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(agents).where(agents.c.status == AgentStatus.ALIVE))
            return await _complete(tx, records(AgentRow, rows))

    async def one(self, agent_id: str) -> AgentRow:
        """Return an agent with its slots, devices and kernels.

        Raises
        ------
        NotFound
            If there is no agent with that id.
        """
        async with self._db.read() as tx:
            return await _one(tx, agent_id)

    async def is_known(self, agent_id: str) -> bool:
        async with self._db.read() as tx:
            known_id = await tx.scalar(sa.select(agents.c.id).where(agents.c.id == agent_id))
            return known_id is not None

    async def update(
        self, agent_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> AgentRow:
        """Update ``schedulable``, ``resource_group`` or ``endpoint``; running sessions continue.

        Raises
        ------
        NotFound
            If the agent or the group does not exist.
        """
        async with self._db.write() as tx:
            group = changes.get("resource_group")
            if group is not None:
                found = await tx.scalar(
                    sa.select(resource_groups.c.name).where(resource_groups.c.name == group)
                )
                if found is None:
                    raise NotFound(f"there is no resource group {group!r}", name=group)
            if changes:
                await tx.execute(agents.update().where(agents.c.id == agent_id).values(changes))
            row = await _one(tx, agent_id)
            await record(tx, audit)
            return row

    async def delete(self, agent_id: str, audit: AuditEntry) -> None:
        """Delete an agent with its devices.

        Raises
        ------
        NotFound
            If there is no agent with that id.
        InUse
            If the agent is alive, or sessions have resources on it.
        """
        async with self._db.write() as tx:
            known = await _lock(tx, agent_id)
            if known is None:
                raise _no_agent(agent_id)
            if known["status"] == AgentStatus.ALIVE:
                raise InUse(
                    f"agent {agent_id} is alive; run bai-agent leave on its machine, or stop it "
                    "first",
                    status=known["status"],
                )
            await remove_agent(tx, agent_id)
            await record(tx, audit)

    async def devices(self, query: ListQuery) -> Page[ListedDeviceRow]:
        async with self._db.read() as tx:
            page = await _DEVICE_LISTING.page(tx, _DEVICES, query, ListedDeviceRow)
            return page.with_items(await with_shares_in_force(tx, page.items))


async def remove_agent(tx: AsyncConnection, agent_id: str) -> None:
    """Delete an agent, its devices and its credential, if they exist.

    Raises
    ------
    InUse
        If sessions have resources on the agent.
    """
    session_count = await tx.scalar(
        sa.select(sa.func.count(sa.distinct(allocations.c.session_id))).where(
            allocations.c.agent_id == agent_id, allocations.c.freed_at.is_(None)
        )
    )
    if session_count:
        raise InUse(
            f"agent {agent_id} is in use by {counted(session_count, 'sessions')}; stop its "
            "sessions first",
            sessions=session_count,
        )
    for table in (agent_slots, devices, agent_credentials):
        await tx.execute(table.delete().where(table.c.agent_id == agent_id))
    await remove_settings(tx, ComponentKind.AGENT, agent_id)
    await tx.execute(agents.delete().where(agents.c.id == agent_id))


def _values(recorded: RecordedHeartbeat, status: AgentStatus, at: datetime) -> dict[str, Any]:
    beat, group, engine = recorded.beat, recorded.group, recorded.group_engine
    facts = dict(beat.facts)
    if recorded.endpoint != beat.endpoint:
        notice = (
            f"the agent reports the endpoint {beat.endpoint or 'none'}, but the Hub uses "
            f"{recorded.endpoint or 'none'}; accept the new one with `bai admin agent update ID "
            "--endpoint URL`"
        )
        facts["notices"] = [*facts.get("notices", []), notice]
    if engine != beat.engine:
        notice = (
            f"resource group {group} runs sessions with the engine {engine}, but this agent has "
            f"the engine {beat.engine}: no sessions are placed on this agent"
        )
        facts["notices"] = [*facts.get("notices", []), notice]
    return {
        "status": status,
        "last_heartbeat_at": at,
        "engine": beat.engine,
        "endpoint": recorded.endpoint,
        "architecture": beat.architecture,
        "version": beat.version,
        "facts": facts,
        "storage_problems": dict(beat.storage_problems),
        "is_network_full": beat.is_network_full,
    }


def _heartbeat_result(
    known: sa.RowMapping | None,
    status: AgentStatus,
    slots_grew: bool,
    device_changes: DeviceChanges,
    recorded: RecordedHeartbeat,
) -> HeartbeatResult:
    before = None if known is None else AgentStatus(known["status"])
    is_back = status is AgentStatus.ALIVE and before is not AgentStatus.ALIVE
    return HeartbeatResult(
        is_new=known is None,
        capacity_increased=is_back or slots_grew or device_changes.capacity_increased,
        status=status,
        before=before,
        refused=device_changes.refused,
        recorded=recorded,
        storage_changed=known is not None
        and known["storage_problems"] != dict(recorded.beat.storage_problems),
        network_changed=known is not None
        and known["is_network_full"] != recorded.beat.is_network_full,
    )


def _expected(one: RepeatedHeartbeat) -> tuple[str, ...]:
    """Return the columns of ``_LOCK_ALL`` except the id."""
    recorded, beat = one.recorded, one.recorded.beat
    return (
        AgentStatus.ALIVE,
        recorded.group,
        beat.engine,
        recorded.endpoint,
        beat.architecture,
        beat.version,
        recorded.group_engine,
    )


def _repeated_values(one: RepeatedHeartbeat) -> dict[str, Any]:
    values = _values(replace(one.recorded, beat=one.beat), AgentStatus.ALIVE, one.at)
    return {"key": one.agent_id, "at": one.at, "facts": values["facts"]}


# SQLite ignores FOR UPDATE. It needs no row locks, because it has a single writer.
_LOCK = (
    sa.select(
        agents.c.resource_group,
        agents.c.status,
        agents.c.endpoint,
        agents.c.storage_problems,
        agents.c.is_network_full,
        resource_groups.c.engine.label("group_engine"),
        sa.exists().where(agent_credentials.c.agent_id == agents.c.id).label("is_joined"),
    )
    .join_from(
        agents, resource_groups, agents.c.resource_group == resource_groups.c.name, isouter=True
    )
    .where(agents.c.id == sa.bindparam("id"))
    .with_for_update(of=agents)
)


_LOCK_ALL = (
    sa.select(
        agents.c.id,
        agents.c.status,
        agents.c.resource_group,
        agents.c.engine,
        agents.c.endpoint,
        agents.c.architecture,
        agents.c.version,
        resource_groups.c.engine.label("group_engine"),
    )
    .join_from(
        agents, resource_groups, agents.c.resource_group == resource_groups.c.name, isouter=True
    )
    .where(agents.c.id.in_(sa.bindparam("ids", expanding=True)))
    # All transactions lock in the same order.
    .order_by(agents.c.id)
    .with_for_update(of=agents)
)
_REPEAT = (
    agents.update()
    .where(agents.c.id == sa.bindparam("key"))
    .values(
        last_heartbeat_at=sa.bindparam("at", type_=agents.c.last_heartbeat_at.type),
        facts=sa.bindparam("facts", type_=agents.c.facts.type),
    )
)
_REPEAT_DEVICE = (
    devices.update()
    .where(devices.c.id == sa.bindparam("key"), devices.c.agent_id == sa.bindparam("of_agent"))
    .values(facts=sa.bindparam("facts", type_=devices.c.facts.type))
)


async def _group_of(tx: AsyncConnection, agent_id: str, beat: AgentHeartbeat) -> str:
    """Return the resource group of a new agent."""
    select = sa.select(agent_credentials.c.resource_group)
    invited = await tx.scalar(select.where(agent_credentials.c.agent_id == agent_id))
    return str(invited or beat.resource_group)


async def _lock(tx: AsyncConnection, agent_id: str) -> sa.RowMapping | None:
    """Lock and return an agent's row, to serialize concurrent changes.

    ``group_engine`` is the engine of its resource group, None if the group does not exist.
    """
    return (await tx.execute(_LOCK, {"id": agent_id})).mappings().one_or_none()


async def _one(tx: AsyncConnection, agent_id: str) -> AgentRow:
    rows = records(AgentRow, await tx.execute(sa.select(agents).where(agents.c.id == agent_id)))
    if not rows:
        raise _no_agent(agent_id)
    return (await _complete(tx, rows))[0]


async def _complete(tx: AsyncConnection, rows: Sequence[AgentRow]) -> list[AgentRow]:
    """Return the agents with ``capacity``, ``used``, ``devices`` and ``kernels``."""
    ids = [row.id for row in rows]
    capacity: dict[str, dict[str, int]] = defaultdict(dict)
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for slot in await tx.execute(sa.select(agent_slots).where(agent_slots.c.agent_id.in_(ids))):
        capacity[slot.agent_id][slot.slot] = slot.capacity
        used[slot.agent_id][slot.slot] = slot.used
    devices_of_agent: dict[str, list[DeviceRow]] = defaultdict(list)
    device_rows = await tx.execute(
        sa.select(devices)
        .where(devices.c.agent_id.in_(ids))
        .order_by(devices.c.family, devices.c.index, devices.c.id)
    )
    for device in await with_shares_in_force(tx, records(DeviceRow, device_rows)):
        devices_of_agent[device.agent_id].append(device)
    counted = await tx.execute(
        sa.select(kernels.c.agent_id, sa.func.count())
        .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
        .where(kernels.c.agent_id.in_(ids), sessions.c.status.in_(sorted(OCCUPYING)))
        .group_by(kernels.c.agent_id)
    )
    live = {agent_id: count for agent_id, count in counted}
    return [
        replace(
            row,
            capacity=capacity[row.id],
            used=used[row.id],
            devices=devices_of_agent[row.id],
            kernels=live.get(row.id, 0),
        )
        for row in rows
    ]


def _no_agent(agent_id: str) -> NotFound:
    return NotFound(f"there is no agent {agent_id}", agent=agent_id)
