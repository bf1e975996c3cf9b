"""Resizing running sessions over REST, with the reports of a fake agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.manager.sessions.elastic import COOLDOWN, GROW_AFTER
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


async def start(api: Api, agent: FakeAgent, name: str, **fields: Any) -> dict[str, Any]:
    """Create a session and bring it to RUNNING; return its work item."""
    user = await api.client("user")
    await user.post("/sessions", {"name": name, "resources": SMALL, **fields})
    await api.world.manager.scheduling.scheduler.run_pass()
    item = await agent.prepare()
    session = await user.get(f"/sessions/{name}", wait="PREPARED", timeout="60", timeout_seconds=70)
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await agent.beat([agent.running(item)])
    return item


async def resize_item(agent: FakeAgent) -> dict[str, Any]:
    (item,) = await agent.work(10)
    assert item["kind"] == "resize"
    return item


async def test_resize_is_applied_by_the_agent(api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    await start(api, agent, "my-lab")
    user = await api.client("user")
    resizing = asyncio.create_task(
        user.post("/sessions/my-lab/resize", {"resources": {"cpu": 3, "mem": "512m"}})
    )
    item = await resize_item(agent)
    assert item["slots"] == {"cpu": 3000, "mem": 2**29}
    await agent.report(item)
    session = await resizing
    assert session["requested"] == {"cpu": "3", "mem": "512m"}
    assert session["resize"]["state"] == "applied"
    assert session["resize"]["previous"] == SMALL
    (entry,) = (await (await api.client("admin")).get("/audit-log", action="session.resize"))[
        "items"
    ]
    assert entry["details"]["changes"]["resources"]["after"] == {"cpu": "3", "mem": "512m"}
    with pytest.raises(InvalidRequest, match="started without cuda"):
        await user.post("/sessions/my-lab/resize", {"resources": {"cuda.shares": "0.5"}})


async def test_failed_resize_is_reported_and_reverted(api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    await start(api, agent, "my-lab")
    user = await api.client("user")
    resizing = asyncio.create_task(user.post("/sessions/my-lab/resize", {"resources": {"cpu": 4}}))
    item = await resize_item(agent)
    await agent.report(item, "failed", error={"message": "the engine is on strike"})
    with pytest.raises(Conflict, match="on strike"):
        await resizing
    session = await user.get("/sessions/my-lab")
    assert (session["requested"], session["resize"]["state"]) == (SMALL, "failed")
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_elastic_session_grows_and_shrinks_for_a_waiting_one(api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    preferred = {"cpu": "8", "mem": "1g"}
    lab = await start(api, agent, "my-lab", resources=preferred, minimum_resources={"cpu": "2"})
    user, elastic = await api.client("user"), api.world.manager.sessions.elastic
    session = await user.get("/sessions/my-lab")
    assert session["requested"] == {"cpu": "2", "mem": "1g"}
    assert session["elasticity"]["preferred"] == preferred
    await elastic.step()
    await agent.report(await resize_item(agent))
    assert (await user.get("/sessions/my-lab"))["requested"] == preferred
    await user.post("/sessions", {"name": "next-lab", "resources": {"cpu": "3", "mem": "1g"}})
    await api.world.manager.scheduling.scheduler.run_pass()
    await elastic.step()
    item = await resize_item(agent)
    assert item["slots"]["cpu"] == 5000
    # The session holds its previous size until the agent reports.
    assert (await user.get("/sessions/next-lab"))["status"] == "PENDING"
    await agent.report(item)
    await api.world.manager.scheduling.scheduler.run_pass()
    await user.get("/sessions/next-lab", wait="SCHEDULED", timeout="20", timeout_seconds=30)
    # There is capacity again, but a session that was resized does not grow for some time.
    await user.delete("/sessions/next-lab")
    await elastic.step()
    assert (await user.get("/sessions/my-lab"))["resize"]["state"] == "applied"
    api.world.clock.advance(seconds=max(COOLDOWN, GROW_AFTER).total_seconds())
    await agent.beat([agent.running(lab)])
    await elastic.step()
    assert (await resize_item(agent))["slots"]["cpu"] == 8000


async def test_size_below_the_minimum_of_an_elastic_session_is_refused(api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    size = {"resources": {"cpu": "1", "mem": "2g"}, "minimum_resources": {"mem": "1g"}}
    await start(api, agent, "my-lab", **size)
    user = await api.client("user")
    with pytest.raises(InvalidRequest, match="mem=512m is less than the minimum .*mem=1g"):
        await user.post("/sessions/my-lab/resize", {"resources": {"mem": "512m"}})
    assert (await user.get("/sessions/my-lab"))["resize"] is None


async def test_minimum_above_the_request_is_refused(api: Api) -> None:
    await FakeAgent(api.agent).beat()
    user = await api.client("user")
    for minimum, why in (({"cpu": "2"}, "is more than"), ({"cpu": "0"}, "must be more than 0")):
        with pytest.raises(InvalidRequest, match=why):
            await user.post("/sessions", {"resources": SMALL, "minimum_resources": minimum})
