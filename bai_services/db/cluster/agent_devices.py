"""Update the slots and devices of an agent from its heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.device_sharing import Sharing
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.resources import SHARE_UNIT

from ..tables.cluster import agent_slots, agents, devices

_UPDATE = (
    sa.update(devices)
    .where(devices.c.id == sa.bindparam("key"))
    .values(
        {
            name: sa.bindparam(name)
            for name in (
                "agent_id", "family", "index", "model", "memory_bytes", "numa_node",
                "is_simulated", "is_healthy", "facts",
            )
        }
    )
)  # fmt: skip

_SLOTS_OF_AGENTS = sa.select(
    agent_slots.c.agent_id, agent_slots.c.slot, agent_slots.c.capacity
).where(agent_slots.c.agent_id.in_(sa.bindparam("ids", expanding=True)))
_DEVICES_OF_AGENTS = sa.select(
    devices.c.id,
    devices.c.agent_id,
    devices.c.family,
    devices.c.index,
    devices.c.model,
    devices.c.memory_bytes,
    devices.c.numa_node,
    devices.c.is_simulated,
    devices.c.is_healthy,
    devices.c.facts,
).where(devices.c.agent_id.in_(sa.bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True)
class NewDevice:
    """A device as reported by its agent; ``id`` must be unique among all agents."""

    id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None
    numa_node: int | None
    is_simulated: bool
    is_healthy: bool
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """Result of an update of devices.

    ``capacity_increased``: a healthy device was added or moved from another agent, a device became
    healthy, or the enforcement level or the offered shares of a healthy device have changed.
    ``refused`` contains the ids of the devices that belong to another agent.
    """

    capacity_increased: bool
    refused: tuple[str, ...]


async def write_slots(tx: AsyncConnection, agent_id: str, slots: Mapping[str, int]) -> bool:
    """Store the capacities of an agent; return whether a slot is new or a capacity has increased.

    Usage is not changed. A slot that the agent no longer reports is deleted if it is unused;
    otherwise, its capacity becomes 0.
    """
    is_of_agent = agent_slots.c.agent_id == agent_id
    found = await tx.execute(
        sa.select(agent_slots.c.slot, agent_slots.c.capacity, agent_slots.c.used).where(is_of_agent)
    )
    known = {row.slot: row for row in found}
    has_grown = False
    for slot, capacity in sorted(slots.items()):
        if slot not in known:
            await tx.execute(
                agent_slots.insert().values(agent_id=agent_id, slot=slot, capacity=capacity, used=0)
            )
            has_grown = True
        elif known[slot].capacity != capacity:
            await tx.execute(
                agent_slots.update()
                .where(is_of_agent, agent_slots.c.slot == slot)
                .values(capacity=capacity)
            )
            has_grown = has_grown or capacity > known[slot].capacity
    for slot in sorted(known.keys() - slots.keys()):
        row = (is_of_agent, agent_slots.c.slot == slot)
        deleted = await tx.execute(agent_slots.delete().where(*row, agent_slots.c.used == 0))
        if not deleted.rowcount and known[slot].capacity:
            await tx.execute(agent_slots.update().where(*row).values(capacity=0))
    return has_grown


async def write_devices(
    tx: AsyncConnection, agent_id: str, reported: Sequence[NewDevice]
) -> DeviceChanges:
    """Store the devices of an agent.

    A device that is no longer reported is marked unhealthy, or deleted if it is simulated and
    unused. A reported device of another agent is moved to this agent if the device is unused and
    the other agent is not alive; otherwise, the device is refused.
    """
    ids = [device.id for device in reported]
    found = await tx.execute(
        sa.select(devices, agents.c.status)
        .join_from(devices, agents, devices.c.agent_id == agents.c.id)
        .where(sa.or_(devices.c.agent_id == agent_id, devices.c.id.in_(ids)))
    )
    known = {row["id"]: row for row in found.mappings()}
    refused: list[str] = []
    changed: list[dict[str, Any]] = []
    capacity_increased = False
    for device in reported:
        before = known.get(device.id)
        values = _values(agent_id, device)
        if before is None:
            await tx.execute(
                devices.insert().values(id=device.id, capacity=SHARE_UNIT, used=0, **values)
            )
            capacity_increased = capacity_increased or device.is_healthy
            continue
        if before["agent_id"] != agent_id and (
            before["status"] == AgentStatus.ALIVE or before["used"]
        ):
            refused.append(device.id)
            continue
        if any(before[name] != value for name, value in values.items()):
            changed.append({"key": device.id, **values})
            was, now = Sharing.from_facts(before["facts"]), Sharing.from_facts(device.facts)
            is_moved = before["agent_id"] != agent_id
            is_new = device.is_healthy and (is_moved or not before["is_healthy"] or was != now)
            capacity_increased = capacity_increased or is_new
    if changed:
        # Use one call for all devices, because each heartbeat of a busy machine changes the facts
        # of all its devices.
        await tx.execute(_UPDATE, changed)
    known_here = {device_id for device_id, row in known.items() if row["agent_id"] == agent_id}
    await _write_missing(tx, sorted(known_here - set(ids)))
    return DeviceChanges(capacity_increased, tuple(refused))


async def changed_agents(
    tx: AsyncConnection, recorded: Mapping[str, tuple[Mapping[str, int], Sequence[NewDevice]]]
) -> set[str]:
    """Return the agents whose stored slots or devices differ from the recorded ones.

    Stored devices that are unhealthy and not simulated may be missing in ``recorded``, because
    ``write_devices`` keeps them.
    """
    ids = {"ids": sorted(recorded)}
    slots: dict[str, dict[str, int]] = {agent_id: {} for agent_id in recorded}
    for row in await tx.execute(_SLOTS_OF_AGENTS, ids):
        slots[row.agent_id][row.slot] = row.capacity
    stored: dict[str, dict[str, dict[str, Any]]] = {agent_id: {} for agent_id in recorded}
    for found in (await tx.execute(_DEVICES_OF_AGENTS, ids)).mappings():
        values = dict(found)
        stored[values["agent_id"]][values.pop("id")] = values
    changed = set()
    for agent_id, (capacity, reported) in recorded.items():
        expected = {device.id: _values(agent_id, device) for device in reported}
        kept = {
            key: values
            for key, values in stored[agent_id].items()
            if key in expected or values["is_healthy"] or values["is_simulated"]
        }
        if slots[agent_id] != dict(capacity) or kept != expected:
            changed.add(agent_id)
    return changed


async def _write_missing(tx: AsyncConnection, ids: Sequence[str]) -> None:
    if not ids:
        return
    is_missing = devices.c.id.in_(ids)
    await tx.execute(
        devices.delete().where(is_missing, devices.c.is_simulated, devices.c.used == 0)
    )
    await tx.execute(
        devices.update().where(is_missing, devices.c.is_healthy).values(is_healthy=False)
    )


def _values(agent_id: str, device: NewDevice) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "family": device.family,
        "index": device.index,
        "model": device.model,
        "memory_bytes": device.memory_bytes,
        "numa_node": device.numa_node,
        "is_simulated": device.is_simulated,
        "is_healthy": device.is_healthy,
        "facts": dict(device.facts),
    }
