"""Agents of the previous and the next version of the protocol work; others get a clear message."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.cluster.protocol import PROTOCOL
from bai_services.core.errors import Conflict
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

# The messages of an agent of version 1, as the last release of this version sent them.
HEARTBEAT_1: dict[str, Any] = {
    "resource_group": "default",
    "engine": "process",
    "endpoint": "",
    "architecture": "x86_64",
    "version": "0.1.0",
    "facts": {"hostname": "vm", "isolation": "bubblewrap", "binds_subpaths": True, "notices": []},
    "slots": {"cpu": "8", "mem": "16g"},
    "devices": [],
    "images": [],
    "settings": [],
}
INJECTION_1: dict[str, Any] = {
    "environ": {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "", "BAI_DEVICES": "[]"},
    "defaults": {},
    "device_nodes": [],
    "device_requests": [],
    "mounts": [
        {
            "source": "/var/lib/bai/sessions/1/home",
            "target": "/home/work",
            "read_only": False,
            "is_own": True,
        }
    ],
    "network": "",
    "capabilities": [],
    "groups": [],
    "memlock": False,
    "notices": [],
    "enforcement": {},
    "devices": [],
}
# The fields that an agent of version 1 reads from responses and work items.
RESPONSE_1 = {"deadline_seconds", "interval_seconds", "hub_api_url", "is_new"}
PREPARE_1 = {
    "id", "kind", "session_id", "kernel_id", "hostname", "attempt", "image", "user", "uid", "gid",
    "slots", "shared_memory_bytes", "devices", "cluster", "mounts",
}  # fmt: skip
LAUNCH_1 = {"id", "kind", "session_id", "kernel_id", "hostname", "attempt", "plan"}


async def beat(api: Api, *kernels: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {**HEARTBEAT_1, "kernels": list(kernels), **fields}
    return dict(await api.agent.post("/agents/old/heartbeat", body))


async def item(api: Api) -> dict[str, Any]:
    async def items() -> list[dict[str, Any]]:
        return list((await api.agent.get("/agents/old/work", wait="5"))["items"])

    (one,) = await wait_until_async(items, 60, "a work item")
    return dict(one)


async def report(api: Api, of: dict[str, Any], **facts: Any) -> Any:
    names = ("kind", "session_id", "kernel_id")
    body = {"work_id": of["id"], "state": "done", **{name: of[name] for name in names}, **facts}
    return await api.agent.post("/agents/old/reports", body)


async def test_agent_of_version_1_runs_a_batch_session(api: Api, user: Client) -> None:
    assert set(await beat(api)) >= RESPONSE_1
    api.world.manager.start_session_loops()
    command = {"type": "batch", "startup_command": "true"}
    await user.post(
        "/sessions", {"name": "train", **command, "resources": {"cpu": "1", "mem": "1g"}}
    )
    prepare = await item(api)
    assert prepare["kind"] == "prepare"
    assert set(prepare) >= PREPARE_1
    await report(api, prepare, injection=INJECTION_1, can_launch=True, attempt=0)
    launch = await item(api)
    assert launch["kind"] == "launch"
    assert set(launch) >= LAUNCH_1
    await report(api, launch, container_id="pid-6664", attempt=0)
    await wait_for_status(user, "train", "RUNNING")
    kernel = {
        "kernel_id": prepare["kernel_id"],
        "session_id": prepare["session_id"],
        "container_id": "pid-6664",
        "is_running": True,
        "exit_code": None,
        "usage": {"cpu_cores": 1.0},
        "is_kept": False,
    }
    await beat(api, kernel)
    end = {"exit_code": 0, "reason_code": "exited", "reason": "exited"}
    answer = await report(api, {**launch, "kind": "exit"}, end=end, log="out\n", attempt=0)
    assert answer == {"is_removable": True}
    done = await wait_for_status(user, "train", "TERMINATED")
    assert (done["result"], done["exit_code"]) == ("success", 0)
    # The manager has recorded the agent's protocol version.
    agent = await (await api.client("admin")).get("/agents/old")
    assert agent["facts"]["protocol"] == 1


async def test_agent_of_the_next_version_is_accepted(api: Api) -> None:
    kernel = {
        "kernel_id": "11111111-1111-1111-1111-111111111111",
        "session_id": "22222222-2222-2222-2222-222222222222",
        "is_running": True,
        "temperature": 60,
    }
    response = await beat(api, kernel, protocol=PROTOCOL + 1, a_new_field=[1])
    # The agent uses this field to decide whether it is compatible with the manager.
    assert response["protocol"] == PROTOCOL
    admin = await api.client("admin")
    (agent,) = (await admin.get("/agents"))["items"]
    assert (agent["id"], agent["status"]) == ("old", "ALIVE")


@pytest.mark.parametrize(
    "version, remedy",
    [
        pytest.param(PROTOCOL - 2, "install the manager's release", id="two versions older"),
        pytest.param(PROTOCOL + 2, "upgrade the manager first", id="two versions newer"),
    ],
)
async def test_agent_of_another_version_is_rejected_with_a_remedy(
    api: Api, version: int, remedy: str
) -> None:
    with pytest.raises(Conflict, match=f"version {version} of the agent protocol.*{remedy}"):
        await beat(api, protocol=version)
    assert (await (await api.client("admin")).get("/agents"))["total"] == 0


async def test_doctor_reports_an_agent_of_the_previous_version(api: Api) -> None:
    await FakeAgent(api.agent).beat(protocol=PROTOCOL - 1)
    api.world.manager.cluster.doctor.report_seconds = 0.1
    report = await (await api.client("admin")).post("/cluster-checks", timeout_seconds=60)
    (node,) = report["nodes"]
    (finding,) = [one for one in node["findings"] if one["check"] == "protocol"]
    assert finding["level"] == "warning"
    assert "upgrade the agent" in finding["remedy"]
