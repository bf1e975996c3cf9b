"""Sessions with folders are placed only where the storage of the folders works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.cluster.storage_checks import MARKER_FILE
from bai_services.storage.base import Health, HostStatus
from bai_services.storage.host import StorageHost
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


@pytest.fixture(autouse=True)
async def host(api: Api) -> AsyncIterator[StorageHost]:
    """The storage host of the manager, after its first probe."""
    host = api.world.manager.folders.storage_hosts.get("local")
    await host.start()
    yield host
    await host.stop()


async def create(user: Client, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "resources": {"cpu": "1", "mem": "1g"}, **fields}
    return dict(await user.post("/sessions", body))


async def placed(api: Api, user: Client, session: dict[str, Any]) -> dict[str, Any]:
    await api.world.manager.scheduling.scheduler.run_pass()
    return dict(await user.get(f"/sessions/{session['id']}"))


@pytest.mark.both_databases
async def test_session_with_a_folder_waits_until_its_storage_works_on_an_agent(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    agent = FakeAgent(api.agent, storage={"local": "read-only", "removed": "failing"})
    await agent.beat()
    assert (await admin.get("/agents/a1"))["storage_problems"] == {"local": "read-only"}
    await user.post("/vfolders", {"name": "data"})
    with_folder = await create(user, "with", mounts=[{"vfolder": "data"}])
    without = await create(user, "without")
    assert (await placed(api, user, without))["status"] == "SCHEDULED"
    waiting = await placed(api, user, with_folder)
    assert waiting["status"] == "PENDING"
    assert waiting["status_info"] == (
        "the only agent of resource group default cannot run the session: 0 not alive, 0 not "
        "schedulable, 0 with an architecture other than x86_64 or another engine, 1 on which "
        "storage host local does not work"
    )
    why = await user.get(f"/sessions/{with_folder['id']}/why")
    failed = [check for check in why["checks"] if not check["passed"]]
    assert [check["message"] for check in failed] == [waiting["status_info"]]
    # The preview of a session gives the same reason before it is created.
    preview = await user.post(
        "/sessions/preview", {"name": "next", "mounts": [{"vfolder": "data"}]}
    )
    assert "storage host local does not work" in str(preview["checks"])
    await agent.beat(storage={"local": ""})
    assert (await placed(api, user, with_folder))["status"] == "SCHEDULED"
    assert (await admin.get("/agents/a1"))["storage_problems"] == {}


async def test_session_with_a_folder_goes_to_the_agent_on_which_its_storage_works(api: Api) -> None:
    admin = await api.client("admin")  # a superadmin may choose the agent
    failing = FakeAgent(api.agent, "a1", storage={})
    await failing.beat()
    # This agent reports no storage, like an earlier version, which does not check it.
    await FakeAgent(api.agent, "a2").beat()
    await admin.post("/vfolders", {"name": "data"})
    chosen = {"agent_list": ["a1"], "agent_selection": "preferred"}
    fields = {"mounts": [{"vfolder": "data"}], **chosen}
    first = await placed(api, admin, await create(admin, "first", **fields))
    assert [kernel["agent"] for kernel in first["kernels"]] == ["a2"]
    await failing.beat(storage={"local": ""})
    second = await placed(api, admin, await create(admin, "second", **fields))
    assert [kernel["agent"] for kernel in second["kernels"]] == ["a1"]


async def test_response_lists_the_file_systems_to_check(api: Api, host: StorageHost) -> None:
    agent = FakeAgent(api.agent, storage={"local": "not-responding"})
    body = {**agent.heartbeat, "kernels": []}
    response = await api.agent.post("/agents/a1/heartbeat", body)
    root: Path = api.world.manager.settings.storage_root
    marker = (root / MARKER_FILE).read_text()
    assert response["storage"] == [{"name": "local", "path": str(root), "marker": marker}]
    # If a host does not work for the manager either, agents need not check it: the start of a
    # session reports the error.
    host.health = Health(HostStatus.GONE, "gone", 0, 0, host.health.checked_at)
    response = await api.agent.post("/agents/a1/heartbeat", body)
    assert response["storage"] == []
    admin = await api.client("admin")
    assert (await admin.get("/agents/a1"))["storage_problems"] == {}
