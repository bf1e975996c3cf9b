"""No session is placed on an agent without a free subnet for networks of sessions."""

from __future__ import annotations

import pytest

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


@pytest.mark.both_databases
async def test_session_waits_until_an_agent_has_a_free_subnet(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    run_pass = api.world.manager.scheduling.scheduler.run_pass
    agent = FakeAgent(api.agent, is_network_full=True)
    await agent.beat()
    assert (await admin.get("/agents/a1"))["is_network_full"]
    session = await user.post("/sessions", {"name": "lab1"})
    path = f"/sessions/{session['id']}"
    await run_pass()
    waiting = await user.get(path)
    assert waiting["status"] == "PENDING"
    assert waiting["status_info"] == (
        "the only agent of resource group default cannot run the session: 0 not alive, 0 not "
        "schedulable, 0 with an architecture other than x86_64 or another engine, 1 without a free "
        "subnet for networks of sessions"
    )
    await agent.beat(is_network_full=False)
    await run_pass()
    assert (await user.get(path))["status"] == "SCHEDULED"
