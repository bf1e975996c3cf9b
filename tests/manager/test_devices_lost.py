"""An agent with devices is lost, and devices change while a session uses them."""

from __future__ import annotations

from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.records import Session
from tests.testbed.fake_agent import FakeAgent

from .test_hub_servers import Cluster, cluster

__all__ = ["cluster"]

ONE = {"cuda.device": "1"}
QUARTER = {"cuda.shares": "0.25"}


def gpu(name: str, sharing: Sharing, **facts: Any) -> dict[str, Any]:
    return {"id": name, "family": "cuda", "index": 0, "facts": sharing.to_facts(), **facts}


async def devices_of(cluster: Cluster, session: Session) -> list[str]:
    await cluster.until(session.id, Status.SCHEDULED, Status.PREPARING)
    view = await cluster.store.view(session.id)
    return [a.device_id for a in view.allocations if a.device_id]


async def test_sessions_of_a_lost_agent_fail_after_an_hour(
    cluster: Cluster,
) -> None:
    soft = Sharing(Level.SOFT)
    await cluster.agent.beat(devices=[gpu("g1", soft)])
    first = await cluster.create("on-g1", resources=ONE)
    # Run the first pass now: it may JIT-compile its code, which can take a minute.
    await cluster.manager.scheduling.scheduler.run_pass()
    item = await cluster.agent.prepare()
    await cluster.until(first.id, Status.RUNNING)
    await cluster.launch(first)
    await cluster.agent.beat([cluster.agent.running(item)])
    other = FakeAgent(cluster.agent.client, "a2", devices=[gpu("g2", soft)])
    cluster.clock.advance(seconds=41)
    await other.beat()
    await cluster.manager.cluster.agents.check_deadlines()
    second = await cluster.create("on-g2", resources=ONE)
    assert await devices_of(cluster, second) == ["g2"]
    # The lost agent gets no other session.
    third = await cluster.create("waiting", resources=ONE)
    await cluster.manager.scheduling.scheduler.run_pass()
    assert (await cluster.store.find(third.id)).status is Status.PENDING
    cluster.clock.advance(minutes=58)
    await other.beat()
    await cluster.manager.servers.lost_agents.step()
    assert (await cluster.store.find(first.id)).status is Status.RUNNING
    cluster.clock.advance(minutes=3)
    await other.beat()
    await cluster.manager.servers.lost_agents.step()
    row = await cluster.until(first.id, Status.ERROR)
    assert row.status_info == "its agent has been lost for more than 60 minutes"


async def test_paused_device_is_not_granted_until_it_is_available(cluster: Cluster) -> None:
    process = Sharing(Level.PROCESS, 250, 250)
    paused = Sharing(Level.PROCESS, 250, 250, is_paused=True)
    await cluster.agent.beat(devices=[gpu("g1", paused)])
    session = await cluster.create("lab1", resources=QUARTER)
    await cluster.manager.scheduling.scheduler.run_pass()
    row = await cluster.store.find(session.id)
    assert row.status is Status.PENDING
    await cluster.agent.beat(devices=[gpu("g1", process)])
    assert await devices_of(cluster, session) == ["g1"]


async def test_running_session_keeps_its_device_when_the_device_list_changes(
    cluster: Cluster,
) -> None:
    soft = Sharing(Level.SOFT)
    await cluster.agent.beat(devices=[gpu("g1", soft), gpu("g2", soft)])
    session = await cluster.create("lab1", resources=ONE)
    await cluster.manager.scheduling.scheduler.run_pass()
    item = await cluster.agent.prepare()
    await cluster.until(session.id, Status.RUNNING)
    kernel = cluster.agent.running(item)
    (held,) = [a.device_id for a in (await cluster.store.view(session.id)).allocations
               if a.device_id]  # fmt: skip
    # The agent removes the device, then reports a MIG instance instead, then reports the device as
    # unhealthy.
    part = gpu("m1", Sharing(Level.HARDWARE, most=0))
    part["facts"]["slot"] = "cuda.mig-1g.10gb"
    for devices in ([], [part], [gpu(held, soft, is_healthy=False), part]):
        await cluster.agent.beat([kernel], devices=devices)
        assert (await cluster.store.find(session.id)).status is Status.RUNNING
    assert await cluster.manager.sessions.records.check_consistency() == []
    instance = await cluster.create("lab2", resources={"cuda.mig-1g.10gb": "1"})
    assert await devices_of(cluster, instance) == ["m1"]
