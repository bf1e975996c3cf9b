"""Read agents with their capacity, usage and devices as input values of a scheduling pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.cluster.devices import Device, part_slot
from bai_services.core.cluster.group_options import MINIMUM
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.scheduling.placement import ALIVE, AgentState

from ..cluster.shares_in_force import needs_uniform_shares, read_shares_in_force
from ..tables.cluster import agent_slots, agents, devices, resource_groups
from .caps import CHUNK


async def read_agents(tx: AsyncConnection, groups: Iterable[str]) -> list[AgentState]:
    """Return the agents of these resource groups; skip terminated agents."""
    return await _read_agents(tx, _OF_GROUPS, sorted(groups))


async def read_agents_of(tx: AsyncConnection, ids: Iterable[str]) -> list[AgentState]:
    """Return the agents with these ids; skip unknown ids and terminated agents."""
    wanted = sorted(ids)
    states: list[AgentState] = []
    for start in range(0, len(wanted), CHUNK):
        states += await _read_agents(tx, _OF_IDS, wanted[start : start + CHUNK])
    return states


def _agent_selects(is_wanted: sa.ColumnElement[bool], ids: Any) -> tuple[sa.Select[Any], ...]:
    """Return the three statements that read agents, their slots and their devices."""
    return (
        sa.select(
            agents.c.id,
            agents.c.resource_group,
            agents.c.architecture,
            agents.c.engine,
            agents.c.status,
            agents.c.schedulable,
            agents.c.storage_problems,
            agents.c.is_network_full,
            resource_groups.c.scheduler_opts[MINIMUM].as_string().label("minimum"),
        )
        .join_from(agents, resource_groups, agents.c.resource_group == resource_groups.c.name)
        .where(is_wanted, agents.c.status != AgentStatus.TERMINATED)
        .order_by(agents.c.id),
        sa.select(agent_slots).where(agent_slots.c.agent_id.in_(ids)),
        sa.select(devices).where(devices.c.agent_id.in_(ids)).order_by(devices.c.id),
    )


_KEYS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
_IN_GROUPS = agents.c.resource_group.in_(_KEYS)
# Built once, at import, because these statements run for each new session.
_OF_GROUPS = _agent_selects(_IN_GROUPS, sa.select(agents.c.id).where(_IN_GROUPS))
_OF_IDS = _agent_selects(agents.c.id.in_(_KEYS), _KEYS)


async def _read_agents(
    tx: AsyncConnection, selects: Sequence[sa.Select[Any]], keys: Sequence[str]
) -> list[AgentState]:
    of_agents, of_slots, of_devices = selects
    rows = (await tx.execute(of_agents, {"keys": keys})).all()
    capacity: dict[str, dict[str, int]] = defaultdict(dict)
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for slot in await tx.execute(of_slots, {"keys": keys}):
        capacity[slot.agent_id][slot.slot] = slot.capacity
        used[slot.agent_id][slot.slot] = slot.used
    minimum = {row.id: _minimum(row.minimum) for row in rows}
    device_rows = (await tx.execute(of_devices, {"keys": keys})).all()
    shared = [d.id for d in device_rows if needs_uniform_shares(d)]
    in_force = await read_shares_in_force(tx, list(minimum), shared)
    of_agent, cuda = _devices_of(device_rows, minimum, in_force)
    return [
        AgentState(
            id=row.id,
            cuda_driver=cuda.get(row.id, ""),
            resource_group=row.resource_group,
            architecture=row.architecture,
            engine=row.engine,
            capacity=capacity[row.id],
            used=used[row.id],
            devices=tuple(of_agent[row.id]),
            is_alive=row.status == ALIVE,
            is_schedulable=row.schedulable,
            unusable_hosts=tuple(sorted(row.storage_problems)),
            is_network_full=row.is_network_full,
        )
        for row in rows
    ]


def _devices_of(
    rows: Iterable[sa.Row[Any]], minimum: Mapping[str, Level], in_force: Mapping[str, int]
) -> tuple[Mapping[str, list[Device]], Mapping[str, str]]:
    """Return the devices and the supported CUDA version of each agent.

    ``minimum`` maps each agent to the enforcement level that its resource group requires.
    ``in_force`` maps used devices with uniform shares to the share of every session, in
    thousandths.
    """
    of_agent: dict[str, list[Device]] = defaultdict(list)
    cuda: dict[str, str] = {}
    for d in rows:
        if d.family == "cuda" and (version := d.facts.get("cuda")):
            cuda[d.agent_id] = str(version)
        of_agent[d.agent_id].append(
            Device(
                id=d.id,
                family=d.family,
                used=d.used,
                capacity=d.capacity,
                is_healthy=d.is_healthy,
                is_simulated=d.is_simulated,
                model=d.model,
                numa_node=d.numa_node,
                links=_links(d.facts),
                slot=part_slot(d.family, d.facts),
                sharing=Sharing.from_facts(d.facts).restricted_to(
                    minimum.get(d.agent_id, Level.NONE)
                ),
                share_in_force=in_force.get(d.id, 0),
            )
        )
    return of_agent, cuda


def _minimum(text: str | None) -> Level:
    return Level(text) if text in set(Level) else Level.NONE


def _links(facts: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the ids of the devices with a direct link (NVLink) to a device; None if unknown.

    For a device without links, return the devices behind the same PCI switches.
    """
    links, near = facts.get("links"), facts.get("pci_peers")
    direct = [peer for peer, count in links.items() if count] if isinstance(links, Mapping) else []
    beside = near if isinstance(near, list) else []
    if not isinstance(links, Mapping) and not isinstance(near, list):
        return None
    return tuple(sorted(map(str, direct or beside)))
