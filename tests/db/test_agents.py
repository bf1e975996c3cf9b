"""Store of agents: devices in heartbeats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.cluster.model import AgentStatus
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import AgentHeartbeat, AgentStore, RepeatedHeartbeat
from bai_services.db.tables import cluster

from .world import NOW, World, make_world

BEAT = AgentHeartbeat(
    resource_group="main",
    engine="process",
    endpoint="",
    architecture="x86_64",
    version="1",
    facts={},
    slots={"cpu": 8000, "mem": 2**34},
)
# Device d0 is the first device of agent a1.
DEVICE = NewDevice(
    id="a1-g0",
    family="cuda",
    index=0,
    model="Simulated",
    memory_bytes=2**34,
    numa_node=None,
    is_simulated=True,
    is_healthy=True,
    facts={},
)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def test_capacity_increases_when_an_agent_takes_over_a_healthy_device(world: World) -> None:
    agents = AgentStore(world.database)
    await agents.record_heartbeat("a2", BEAT, NOW)
    is_first = cluster.agents.c.id == "a1"
    await world.write(sa.update(cluster.agents).where(is_first).values(status=AgentStatus.LOST))
    broken = replace(DEVICE, id="a1-g1", index=1, is_healthy=False)
    results = [
        await agents.record_heartbeat("a2", replace(BEAT, devices=devices), NOW)
        for devices in ([broken], [broken, DEVICE], [broken, DEVICE])
    ]
    assert [(one.capacity_increased, one.refused) for one in results] == [
        (False, ()),
        (True, ()),
        (False, ()),
    ]


@pytest.mark.both_databases
async def test_repeated_heartbeats_of_changed_agents_are_not_stored(world: World) -> None:
    agents = AgentStore(world.database)
    recorded = {}
    for agent_id in ("b1", "b2", "b3"):
        beat = replace(BEAT, devices=[replace(DEVICE, id=f"{agent_id}-g0")])
        result = await agents.record_heartbeat(agent_id, beat, NOW)
        assert result.recorded is not None
        recorded[agent_id] = result.recorded
    is_second = cluster.agents.c.id == "b2"
    await world.write(sa.update(cluster.agents).where(is_second).values(status=AgentStatus.LOST))
    later = NOW + timedelta(seconds=5)
    repeated = []
    for agent_id, one in recorded.items():
        devices = [replace(one.beat.devices[0], facts={"use": 1})]
        beat = replace(one.beat, facts={"load": 1}, devices=devices)
        repeated.append(RepeatedHeartbeat(agent_id, beat, later, one))
    repeated.append(replace(repeated[0], agent_id="deleted"))
    assert await agents.record_repeated(repeated) == {"b1", "b3"}
    rows = [await agents.one(agent_id) for agent_id in ("b1", "b2", "b3")]
    assert [row.last_heartbeat_at for row in rows] == [later, NOW, later]
    assert [row.facts.get("load") for row in rows] == [1, None, 1]
    assert [row.devices[0].facts for row in rows] == [{"use": 1}, {}, {"use": 1}]
