"""`bai admin group preemptions`."""

from __future__ import annotations

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_sessions import bring_to_running

ALL_CPU = "-r", "cpu=8", "-r", "mem=1g"


async def test_victim_that_was_not_stopped_is_listed_as_such(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    admin = await api.client("admin")
    options = {"preemption": {"enabled": True, "grace": "1m"}}
    await admin.patch("/resource-groups/default", {"scheduler_opts": options})
    await bai("session", "create", "low1", *ALL_CPU, "--priority", "1", by="user")
    await bring_to_running(api, agent, "low1")
    await bai("session", "create", "high", *ALL_CPU, "--priority", "50", by="user")
    await api.world.manager.scheduling.scheduler.run_pass()
    listed = (await bai("admin", "group", "preemptions", "default")).stdout
    assert "VICTIMS" in listed
    assert " low1 (priority) " in listed
    await bai("session", "rm", "high", by="user")
    await api.world.manager.scheduling.preemptions.step()
    listed = (await bai("admin", "group", "preemptions", "default")).stdout
    assert "low1 (priority, not stopped)" in listed
    assert "dropped" in listed
