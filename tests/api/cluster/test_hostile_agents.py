"""False heartbeats of an agent do not affect other agents, their sessions and the manager."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from bai_services.client import Client
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import AGENT_TOKEN, Api

from ..sessions.test_sessions import create_running_session
from ..test_metrics import scrape
from .test_image_pulls import NAME, register

DEEP: dict[str, Any] = {"x": 1}
for _ in range(150):
    DEEP = {"x": DEEP}


DEVICE_FACTS: list[dict[str, Any]] = [
    {"enforcement": ["soft"]},
    {"slot": {"a": 1}},
    {"slot": "cpu"},
    {"slot": "x\0" * 1000},
    {"shares": [1]},
    {"shares": {"least": {}, "most": [], "is_uniform": "yes"}},
    {"links": 5, "pci_peers": {}, "cuda": {}},
]
DEVICES = [
    {"id": f"a2-g{index}", "family": "cuda", "index": index, "facts": facts}
    for index, facts in enumerate(DEVICE_FACTS)
]


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "report",
    [
        pytest.param({"devices": DEVICES}, id="devices"),
        pytest.param(
            {
                "facts": {
                    "images": 5,
                    "image_digests": [1],
                    "load": {"cpu_percent": 10**400},
                    "a\0": "b\0",
                    "deep": DEEP,
                    "notices": 5,
                },
                "engine": "docker",
            },
            id="machine",
        ),
    ],
)
async def test_hostile_facts_affect_no_other_agent(
    api: Api, agent: FakeAgent, user: Client, report: dict[str, Any]
) -> None:
    await agent.beat()
    await FakeAgent(api.agent, "a2", **report).beat()
    admin = await api.client("admin")
    shown = {one["id"]: one for one in (await admin.get("/agents"))["items"]}
    assert shown["a2"]["status"] == "ALIVE"
    assert isinstance(shown["a2"]["facts"].get("notices", []), list)
    assert (await admin.get("/devices"))["total"] >= 2
    assert (await admin.get("/agent-totals"))["agents"] == 2
    assert "bai_agents" in await scrape(api)
    await register(api)
    image = (await admin.get("/images", name=NAME))["items"][0]
    assert (await admin.get(f"/images/{image['id']}/agents"))["items"] == []
    session = await user.post("/sessions", {"name": "lab1", "resources": {"cpu": "1"}})
    await api.world.manager.scheduling.scheduler.run_pass()
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "SCHEDULED"


async def test_numbers_that_are_not_finite_become_null(api: Api) -> None:
    agent = FakeAgent(api.agent)
    body = json.dumps({**agent.heartbeat, "kernels": [], "facts": {"load": 0}})
    async with httpx.AsyncClient() as http:
        response = await http.post(
            f"{api.url}/api/v1/agents/a1/heartbeat",
            content=body.replace('"load": 0', '"load": NaN, "speed": 1e999'),
            headers={"Authorization": f"Bearer {AGENT_TOKEN}"},
        )
    assert response.status_code == 200, response.text
    shown = await (await api.client("admin")).get("/agents/a1")
    assert (shown["facts"]["load"], shown["facts"]["speed"]) == (None, None)


async def test_usage_of_a_kernel_on_another_agent_is_ignored(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1", resources={"cpu": "2"})
    kernel = {"kernel_id": session["kernel_id"], "session_id": session["id"]}
    await agent.beat([agent.running(kernel, usage={"cpu_cores": 1.5})])
    other = FakeAgent(api.agent, "a2")
    await other.beat([other.running(kernel, usage={"cpu_cores": 0.0})])
    assert (await user.get("/sessions/lab1"))["usage"]["cpu_cores"] == 1.5
    found = await user.get("/sessions/lab1/usage-history", period="60")
    assert [value for value in found["metrics"]["cpu_cores"] if value is not None] == [1.5]


async def test_usage_of_the_wrong_type_does_not_stop_the_list_of_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1", resources={"cpu": "2"})
    kernel = {"kernel_id": session["kernel_id"], "session_id": session["id"]}
    await agent.beat([agent.running(kernel, usage={"devices": 5})])
    (shown,) = (await user.get("/sessions", name="lab1"))["items"]
    assert shown["status"] == "RUNNING"
