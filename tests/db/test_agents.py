"""Store of agents: devices in heartbeats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bai_services.core.cluster.model import AgentStatus
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import AgentHeartbeat, AgentStore
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
# The first device of agent a1.
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
