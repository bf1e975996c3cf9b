"""Agents over REST: heartbeats, administration, deadlines and the long poll for work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving
from tests.testbed.wait import wait_until_async


def device(device_id: str, **facts: Any) -> dict[str, Any]:
    return {"id": device_id, "family": "cuda", "index": 0, "memory_bytes": 2**34, **facts}


async def free_slots(admin: Client, agent_id: str = "a1") -> dict[str, str]:
    return dict((await admin.get(f"/agents/{agent_id}"))["slots"])


async def create_and_schedule_session(api: Api, **resources: str) -> dict[str, Any]:
    """Create a session, run one scheduling pass and return the session."""
    user = await api.client("user")
    session = await user.post("/sessions", {"name": "lab1", "resources": resources})
    await api.world.manager.scheduling.scheduler.run_pass()
    return dict(await user.get(f"/sessions/{session['id']}"))


@pytest.mark.checklist("RG-03")
async def test_a_heartbeat_registers_an_agent(api: Api) -> None:
    admin = await api.client("admin")
    fake_agent = FakeAgent(api.agent, facts={"hostname": "node1"}, images=["py:1"])
    await fake_agent.beat()
    agent = await admin.get("/agents/a1")
    assert (agent["status"], agent["schedulable"], agent["kernels"]) == ("ALIVE", True, 0)
    assert agent["resource_group"] == "default"
    assert agent["slots"] == {"cpu": "8", "cuda.shares": "2", "mem": "16g"}
    assert agent["used"] == {}
    assert agent["facts"] == {"hostname": "node1", "images": ["py:1"], "protocol": 1}
    assert [d["capacity"] for d in agent["devices"]] == ["1", "1"]
    page = await admin.get("/devices", agent_id="a1", is_simulated="true", sort="-index")
    assert [d["id"] for d in page["items"]] == ["a1-g1", "a1-g0"]
    assert page["items"][0]["resource_group"] == "default"


async def test_heartbeat_with_unknown_resource_group_is_rejected(api: Api) -> None:
    with pytest.raises(errors.NotFound, match="resource group 'none'"):
        await FakeAgent(api.agent, group="none").beat()
    with pytest.raises(errors.NotFound, match="heartbeat first"):
        await FakeAgent(api.agent).work()


async def test_agent_is_not_schedulable_if_its_engine_is_not_the_engine_of_the_group(
    api: Api,
) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent, engine="docker").beat()
    (notice,) = (await admin.get("/agents/a1"))["facts"]["notices"]
    assert "this agent has the engine docker" in notice
    with pytest.raises(errors.InsufficientResources):
        await create_and_schedule_session(api, cpu="1")


@pytest.mark.parametrize(
    "facts, part",
    [
        pytest.param(
            {"slots": {"cpu": "8", "cuda.shares": "1"}}, "only cpu and mem", id="invalid slot name"
        ),
        pytest.param({"slots": {"cpu": "many"}}, "amount", id="invalid quantity"),
        pytest.param({"devices": [device("a b")]}, "id of a device", id="invalid device id"),
        pytest.param(
            {"devices": [device("a", family="C D")]}, "family", id="invalid device family"
        ),
        pytest.param({"engine": "lxc"}, "engine", id="unknown engine"),
        pytest.param({"architecture": "x\0"}, "architecture", id="NUL in a text"),
    ],
)
async def test_invalid_heartbeat_is_rejected(api: Api, facts: dict[str, Any], part: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=part):
        await FakeAgent(api.agent, **facts).beat()


async def test_invalid_agent_id_is_rejected(api: Api) -> None:
    with pytest.raises(errors.InvalidRequest, match="id of an agent"):
        await FakeAgent(api.agent, agent_id="-a", devices=[]).beat()


async def test_only_agents_may_call_the_agent_routes(api: Api) -> None:
    for client in (await api.client("admin"), api.hub):
        fake_agent = FakeAgent(client)
        for call in (fake_agent.beat(), fake_agent.work()):
            with pytest.raises(errors.Forbidden):
                await call
    with pytest.raises(errors.NotSignedIn):
        await FakeAgent(api.nobody).beat()
    await FakeAgent(api.agent).beat()
    user = await api.client("user")
    for path in ("/agents", "/agents/a1", "/devices"):
        with pytest.raises(errors.Forbidden):
            await user.get(path)
    assert (await (await api.client("monitor")).get("/agents"))["total"] == 1


async def test_used_device_is_kept_when_the_agent_no_longer_reports_it(api: Api) -> None:
    admin = await api.client("admin")
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    session = await create_and_schedule_session(api, cpu="4", mem="8g", **{"cuda.shares": "0.5"})
    assert session["status"] == "SCHEDULED"
    taken = next(a["device"] for a in session["allocations"] if a["device"])
    await fake_agent.beat(slots={"cpu": "2", "mem": "16g"}, devices=[])
    agent = await admin.get("/agents/a1")
    assert agent["slots"] == {"cpu": "2", "mem": "16g"}
    assert agent["used"] == {"cpu": "4", "cuda.shares": "0.5", "mem": "8g"}
    # The used device remains and is marked as unhealthy. The other device, which is simulated and
    # unused, is deleted.
    assert [(d["id"], d["is_healthy"]) for d in agent["devices"]] == [(taken, False)]
    assert await api.world.manager.sessions.records.check_consistency() == []
    await (await api.client("user")).delete(f"/sessions/{session['id']}")
    assert (await admin.get("/agents/a1"))["used"] == {}
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_device_belongs_to_one_live_agent(api: Api) -> None:
    admin, clock = await api.client("admin"), api.world.clock
    real = [device("GPU-1")]
    first, second = (FakeAgent(api.agent, a, devices=real) for a in ("a1", "a2"))
    await first.beat()
    await second.beat()
    assert "cuda.shares" not in await free_slots(admin, "a2")
    clock.advance(seconds=41)
    await api.world.manager.cluster.agents.check_deadlines()
    # Agent a1 is lost. If agent a2 reports the device, the device now belongs to a2.
    await second.beat()
    assert (await free_slots(admin, "a2"))["cuda.shares"] == "1"
    assert (await admin.get("/devices"))["items"][0]["agent_id"] == "a2"


async def test_agent_is_lost_after_the_deadline_and_recovers(api: Api) -> None:
    admin, clock, agents = (
        await api.client("admin"),
        api.world.clock,
        api.world.manager.cluster.agents,
    )
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    clock.advance(seconds=40)
    await agents.check_deadlines()
    assert (await admin.get("/agents/a1"))["status"] == "ALIVE"
    clock.advance(seconds=1)
    await agents.check_deadlines()
    lost = await admin.get("/agents/a1")
    assert (lost["status"], lost["status_changed_at"]) == ("LOST", clock().isoformat())
    assert (await create_and_schedule_session(api, cpu="1"))["status"] == "PENDING"
    await fake_agent.beat()
    assert (await admin.get("/agents/a1"))["status"] == "ALIVE"
    await api.world.manager.scheduling.scheduler.run_pass()
    assert len(await fake_agent.work()) == 1


async def test_missed_heartbeats_before_the_managers_start_are_ignored(api: Api) -> None:
    admin, clock, manager = await api.client("admin"), api.world.clock, api.world.manager
    await FakeAgent(api.agent).beat()
    clock.advance(minutes=10)
    manager.cluster.agents.start()
    await manager.cluster.agents.check_deadlines()
    assert (await admin.get("/agents/a1"))["status"] == "ALIVE"
    clock.advance(seconds=41)
    await manager.cluster.agents.check_deadlines()
    assert (await admin.get("/agents/a1"))["status"] == "LOST"


async def test_leaving_agent_gets_no_new_sessions(api: Api) -> None:
    admin = await api.client("admin")
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    await fake_agent.beat(is_leaving=True)
    assert (await admin.get("/agents/a1"))["status"] == "TERMINATED"
    assert (await create_and_schedule_session(api, cpu="1"))["status"] == "PENDING"


async def test_agent_is_changed_and_deleted(api: Api) -> None:
    admin, clock = await api.client("admin"), api.world.clock
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    await admin.patch("/agents/a1", {"schedulable": False})
    session = await create_and_schedule_session(api, cpu="1")
    assert session["status"] == "PENDING"
    assert "1 not schedulable" in session["reasons"][0]["message"]
    await admin.patch("/agents/a1", {"schedulable": True})
    await api.world.manager.scheduling.scheduler.run_pass()
    await admin.post("/resource-groups", {"name": "other"})
    await admin.patch("/agents/a1", {"resource_group": "other"})
    # The group that the administrator set takes precedence over the group in the heartbeat.
    await fake_agent.beat()
    assert (await admin.get("/agents/a1"))["resource_group"] == "other"
    with pytest.raises(errors.NotFound):
        await admin.patch("/agents/a1", {"resource_group": "none"})
    with pytest.raises(errors.InUse, match="alive"):
        await admin.delete("/agents/a1")
    clock.advance(seconds=41)
    await api.world.manager.cluster.agents.check_deadlines()
    with pytest.raises(errors.InUse, match="in use by 1 session;"):
        await admin.delete("/agents/a1")
    await (await api.client("user")).delete("/sessions/lab1")
    await admin.delete("/agents/a1")
    assert (await admin.get("/devices"))["total"] == 0
    for call in (
        admin.get("/agents/a1"),
        admin.delete("/agents/a1"),
        admin.patch("/agents/a1", {"schedulable": True}),
    ):
        with pytest.raises(errors.NotFound):
            await call


async def test_work_is_delivered_immediately(api: Api) -> None:
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    await api.world.manager.start()
    user = await api.client("user")
    # Measure only the second session: the first session fills the caches.
    for name in ("warm", "real"):
        waiting = asyncio.create_task(fake_agent.work(20))
        began = time.perf_counter()
        await user.post("/sessions", {"name": name, "resources": {"cpu": "1"}})
        (item,) = await waiting
        seconds = time.perf_counter() - began
    assert (item["kind"], item["user"]) == ("prepare", "user")
    # The delivery takes a few milliseconds on an idle machine. The limit is higher, because other
    # tests may run at the same time.
    assert seconds < 2, seconds


async def test_abandoned_poll_receives_no_work(api: Api) -> None:
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    dead = asyncio.create_task(fake_agent.work(20))

    async def is_waiting() -> bool:
        return any("Agents.work" in repr(task) for task in asyncio.all_tasks())

    await wait_until_async(is_waiting, 5, "the poll to arrive")
    dead.cancel()
    await asyncio.gather(dead, return_exceptions=True)

    async def is_gone() -> bool:
        return not await is_waiting()

    await wait_until_async(is_gone, 5, "the poll to end")
    await create_and_schedule_session(api, cpu="1")
    assert [item["kind"] for item in await fake_agent.work()] == ["prepare"]


@pytest.mark.parametrize("wait", ["-1", "26", "x", "nan"])
async def test_invalid_wait_is_rejected(api: Api, wait: str) -> None:
    await FakeAgent(api.agent).beat()
    with pytest.raises(errors.InvalidRequest, match="seconds"):
        await api.agent.get("/agents/a1/work", wait=wait)


async def test_users_see_a_summary_of_their_agents_only_if_the_installation_allows_it(
    api: Api, tmp_path: Path
) -> None:
    with pytest.raises(errors.Forbidden, match="does not show agents"):
        await (await api.client("user")).get("/agent-summaries")

    home, clock = tmp_path / "showing", MovableClock()
    home.mkdir()
    url = f"sqlite+aiosqlite:///{home}/bai.sqlite"
    async with (
        manager_on(url, home, clock, shows_agents=True) as manager,
        serving(await make_world(manager, clock)) as served,
    ):
        admin, user = await served.client("admin"), await served.client("user")
        for name, options in (
            ("transfer", {"allowed_session_types": ["system"]}),
            ("closed", {"is_public": False}),
        ):
            await admin.post("/resource-groups", {"name": name, **options})
        for agent_id, group in (("a1", "default"), ("a2", "transfer"), ("a3", "closed")):
            facts = {"hostname": "secret"}
            await FakeAgent(served.agent, agent_id, group=group, facts=facts).beat()
        page = await user.get("/agent-summaries", schedulable="true", sort="-resource_group")
        assert [agent["id"] for agent in page["items"]] == ["a1"]
        assert "secret" not in str(page)
        assert page["items"][0]["slots"]["cpu"] == "8"
        with pytest.raises(errors.InvalidRequest, match="no field 'endpoint"):
            await user.get("/agent-summaries", endpoint__contains="10.")
        with pytest.raises(errors.Forbidden):
            await user.get("/agent-totals")
        totals = await admin.get("/agent-totals")
        assert (totals["agents"], totals["slots"]["cpu"]) == (3, "24")
