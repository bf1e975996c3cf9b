"""Cluster sessions over REST: all kernels are created, placed, prepared and ended together."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.sessions.kernel_group import kernel_end_text
from bai_services.core.sessions.lifecycle import Event
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_sessions import wait_for_status

SMALL = {"cpu": "1", "mem": "1g"}


@pytest.fixture
async def admin(api: Api) -> Client:
    """A client of the superadmin. The keypair policy allows four containers per session."""
    client = await api.client("admin")
    for policy in (await client.get("/keypair-policies"))["items"]:
        changes = {"max_containers_per_session": 4}
        await client.patch(f"/keypair-policies/{policy['name']}", changes)
    return client


async def create_prepared(agent: FakeAgent, user: Client, **body: Any) -> list[dict[str, Any]]:
    """Create a cluster session, prepare its kernels; return the work items, main kernel first."""
    spec = {"name": "gang1", "resources": SMALL, "cluster_size": 3, **body}
    await user.post("/sessions", spec)
    await wait_for_status(user, "gang1", "SCHEDULED")
    items = await agent.work(5)
    for item in items[:-1]:
        await agent.report(item, injection={"network": "n"})
    assert (await user.get("/sessions/gang1"))["status"] == "PREPARING"
    await agent.report(items[-1], injection={"network": "n"})
    await wait_for_status(user, "gang1", "PREPARED")
    return items


@pytest.mark.checklist("CLU-01", "CLU-03")
async def test_cluster_session_starts_and_ends_with_all_its_kernels(
    api: Api, admin: Client, agent: FakeAgent, user: Client
) -> None:
    items = await create_prepared(agent, user)
    assert [item["hostname"] for item in items] == ["main1", "sub1", "sub2"]
    network = {"network": f"bai-c-{items[0]['session_id']}", "is_spread": False}
    assert [item["cluster"] for item in items] == [network] * 3
    session = await user.get("/sessions/gang1")
    assert [k["agent"] for k in session["kernels"]] == ["a1"] * 3
    assert sum(a["slot"] == "cpu" for a in session["allocations"]) == 3

    path = f"/sessions/{session['id']}"
    where = {"user": "user", "server": session["hub_server"]}
    plan = await api.hub.post(f"{path}/launch", where)
    assert [sub["hostname"] for sub in plan["subs"]] == ["sub1", "sub2"]
    assert plan["environ"]["BAI_CLUSTER_HOSTS"] == "main1,sub1,sub2"
    assert plan["subs"][1]["environ"]["BAI_CLUSTER_LOCAL_RANK"] == "2"
    for environ, item in zip(
        (plan["environ"], *(s["environ"] for s in plan["subs"])), items, strict=True
    ):
        assert (environ["BAI_SESSION_ID"], environ["BAI_KERNEL_ID"]) == (
            session["id"],
            item["kernel_id"],
        )
    assert plan["subs"][1]["labels"]["bai.kernel-id"] == items[2]["kernel_id"]
    assert plan["cluster_key"]["private"].startswith("-----BEGIN OPENSSH PRIVATE KEY")
    containers = {"sub1": "c2", "sub2": "c3"}
    await api.hub.post(f"{path}/started", {"container_id": "c1", "sub_containers": containers})
    session = await wait_for_status(user, "gang1", "RUNNING")
    assert [k["container_id"] for k in session["kernels"]] == ["c1", "c2", "c3"]

    usages = [{"cpu_cores": n} for n in range(3)]
    await agent.beat(
        [agent.running(item, usage=used) for item, used in zip(items, usages, strict=True)]
    )
    kernels = (await user.get(f"{path}/usage"))["kernels"]
    assert [kernel["usage"] for kernel in kernels] == usages
    await user.delete(path)
    logs = {"sub1": "one\n", "sub2": "two\n"}
    end = {
        "exit_code": 0,
        "reason_code": "stopped",
        "reason": "stopped through the Hub",
        "log": "main\n",
        "sub_logs": logs,
    }
    await api.hub.post(f"{path}/exited", end)
    ended = await wait_for_status(user, session["id"], "TERMINATED")
    assert ended["allocations"] == []
    assert (await user.get(f"{path}/logs"))["log"] == "main\n"
    assert (await user.get(f"{path}/logs", kernel="sub2"))["log"] == "two\n"
    with pytest.raises(errors.NotFound, match="main1, sub1, sub2"):
        await user.get(f"{path}/logs", kernel="sub9")


@pytest.mark.checklist("CLU-01")
async def test_every_kernel_has_the_same_folders(
    api: Api, admin: Client, agent: FakeAgent, user: Client
) -> None:
    await api.world.manager.folders.vfolders.start()
    await user.post("/vfolders", {"name": "data"})
    mounts = [
        {"vfolder": "data", "path": "/all", "permission": "ro"},
        {"vfolder": "data", "path": "/in", "subpath": "raw"},
    ]
    items = await create_prepared(agent, user, mounts=mounts)
    # The agent prepares both mounts for each kernel. The plan of each kernel contains only the
    # mount without a subpath; the agent adds the other mount.
    assert [[m["target"] for m in item["mounts"]] for item in items] == [["/all", "/in"]] * 3
    assert all(item["mounts"] == items[0]["mounts"] for item in items)
    session = await user.get("/sessions/gang1")
    where = {"user": "user", "server": session["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    kernels = [plan, *plan["subs"]]
    assert [[(m["target"], m["read_only"]) for m in kernel["mounts"]] for kernel in kernels] == [
        [("/all", True)]
    ] * 3


async def create_running(
    api: Api, agent: FakeAgent, user: Client, **body: Any
) -> list[dict[str, Any]]:
    """Create a session (default: three kernels), bring it to RUNNING and return its work items."""
    items = await create_prepared(agent, user, **body)
    session = await user.get("/sessions/gang1")
    path = f"/sessions/{session['id']}"
    await api.hub.post(f"{path}/launch", {"user": "user", "server": session["hub_server"]})
    containers = {f"sub{n}": f"c{n + 1}" for n in range(1, len(items))}
    await api.hub.post(f"{path}/started", {"container_id": "c1", "sub_containers": containers})
    await wait_for_status(user, session["id"], "RUNNING")
    api.world.clock.advance(seconds=20)  # The grace period of new kernels is over.
    return items


def heartbeat_with_exit(
    agent: FakeAgent, items: list[dict[str, Any]], which: int, code: int
) -> list[Any]:
    """Return the kernels of a heartbeat; the kernel with index ``which`` has exited."""
    kernels = [agent.running(item) for item in items]
    kernels[which] |= {"is_running": False, "exit_code": code}
    return kernels


BATCH = {"type": "batch", "startup_command": "true"}


@pytest.mark.parametrize(
    "by, code, body",
    [
        pytest.param("heartbeat", 0, {}, id="heartbeat reports exit code 0"),
        pytest.param("heartbeat", 137, BATCH, id="heartbeat reports exit code 137, batch session"),
        pytest.param("poll", 0, BATCH, id="spawner reports exit code 0, batch session"),
        pytest.param("poll", 137, {}, id="spawner reports exit code 137"),
    ],
)
async def test_exit_of_a_sub_kernel_fails_the_session(
    api: Api,
    admin: Client,
    agent: FakeAgent,
    user: Client,
    by: str,
    code: int,
    body: dict[str, Any],
) -> None:
    items = await create_running(api, agent, user, **body)
    key = items[0]["session_id"]
    end = {"exit_code": 143, "log": "", "sub_logs": {}}
    if by == "heartbeat":
        for _ in range(2):
            await agent.beat(heartbeat_with_exit(agent, items, 1, code))
        session = await wait_for_status(user, key, "TERMINATING")
        # The resources remain allocated until the Hub has stopped the other kernels.
        assert len(session["allocations"]) > 0
        await api.hub.post(
            f"/sessions/{key}/exited",
            {**end, "reason_code": "stopped"},
        )
    else:
        await api.hub.post(
            f"/sessions/{key}/exited",
            {
                **end,
                "reason_code": "kernel-ended",
                "reason": kernel_end_text("sub1", "exited", code),
            },
        )
    session = await wait_for_status(user, key, "TERMINATED")
    assert (session["result"], session["allocations"]) == ("failure", [])
    assert session["exit_code"] == 143  # exit code of the main kernel
    assert session["status_info"] == kernel_end_text("sub1", "exited", code)


@pytest.mark.parametrize(
    "code, result, why",
    [(0, "success", "ended by itself"), (3, "failure", kernel_end_text("main1", "exited", 3))],
)
async def test_exit_of_the_main_kernel_ends_the_session(
    api: Api, admin: Client, agent: FakeAgent, user: Client, code: int, result: str, why: str
) -> None:
    items = await create_running(api, agent, user)
    key = items[0]["session_id"]
    gone = heartbeat_with_exit(agent, items, 0, code)
    await agent.beat(gone)
    assert (await user.get(f"/sessions/{key}"))["status"] == "RUNNING"
    await agent.beat(gone)
    await wait_for_status(user, key, "TERMINATING")
    # The Hub does not respond. Therefore the resources remain allocated until the kernels are
    # missing from the agent's heartbeats.
    api.world.clock.advance(seconds=20)
    for _ in range(3):
        await agent.beat(gone)
    assert (await user.get(f"/sessions/{key}"))["status"] == "TERMINATING"
    for _ in range(2):
        await agent.beat([])
    session = await wait_for_status(user, key, "TERMINATED")
    assert (session["result"], session["status_info"]) == (result, why)
    assert session["allocations"] == []


@pytest.mark.parametrize("code", [0, 3, 137])
@pytest.mark.parametrize("size", [1, 3], ids=["one kernel", "three kernels"])
async def test_result_does_not_depend_on_whether_agent_or_spawner_reports_the_exit_first(
    api: Api, admin: Client, agent: FakeAgent, user: Client, size: int, code: int
) -> None:
    ends = []
    for first in ("heartbeat", "poll"):
        items = await create_running(api, agent, user, cluster_size=size)
        key = items[0]["session_id"]
        by_hub = {"exit_code": code, "reason": "exited", "log": "", "sub_logs": {}}
        if first == "poll":
            await api.hub.post(f"/sessions/{key}/exited", by_hub)
        for _ in range(2):
            await agent.beat(heartbeat_with_exit(agent, items, 0, code))
        await api.hub.post(f"/sessions/{key}/exited", by_hub)
        session = await user.get(f"/sessions/{key}")
        ends.append([session[name] for name in ("status", "result", "exit_code")])
        assert session["allocations"] == []
        await agent.beat([])
    result = "success" if code == 0 else "failure"
    status = "ERROR" if (size, result) == (1, "failure") else "TERMINATED"
    assert ends == [[status, result, code]] * 2


async def test_failed_preparation_of_one_kernel_fails_the_session(
    admin: Client, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "gang1", "resources": SMALL, "cluster_size": 2})
    await wait_for_status(user, "gang1", "SCHEDULED")
    first, second = await agent.work(5)
    await agent.report(first, injection={})
    error = {"code": "unavailable", "message": "the image cannot be pulled"}
    await agent.report(second, "failed", error=error)
    session = await user.get(f"/sessions/{first['session_id']}")
    assert (session["status"], session["allocations"]) == ("ERROR", [])
    assert session["status_info"] == "sub1 on a1: the image cannot be pulled"


async def test_kernels_are_placed_on_several_agents(
    api: Api, admin: Client, agent: FakeAgent, user: Client
) -> None:
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    body = {"name": "wide", "resources": {"cpu": "6", "mem": "1g"}, "cluster_size": 2}
    with pytest.raises(errors.InsufficientResources, match="2 kernels of .*on one agent"):
        await user.post("/sessions", body)
    await user.post("/sessions", {**body, "cluster_mode": "multi-node"})
    session = await wait_for_status(user, "wide", "SCHEDULED")
    assert {k["agent"] for k in session["kernels"]} == {"a1", "a2"}
    for fake_agent in (agent, other):
        item = await fake_agent.prepare()
        assert item["cluster"]["is_spread"]
    await wait_for_status(user, "wide", "PREPARED")


@pytest.mark.parametrize(
    "body, error, part",
    [
        pytest.param(
            {"cluster_size": 5},
            errors.QuotaExceeded,
            "containers.*4",
            id="more kernels than the policy allows",
        ),
        pytest.param(
            {"cluster_size": 4, "cluster_mode": "multi-node", "resources": {"cpu": "8"}},
            errors.InsufficientResources,
            "could never hold 4 kernels.*1 of 4",
            id="more resources than the resource group has",
        ),
        pytest.param(
            {"cluster_size": 2, "cluster_mode": "ring"},
            errors.InvalidRequest,
            "single-node, multi-node",
            id="unknown cluster mode",
        ),
        pytest.param(
            {"cluster_size": 0}, errors.InvalidRequest, "cluster_size", id="cluster size 0"
        ),
        pytest.param(
            {"agent_list": ["a1"]},
            errors.Forbidden,
            r"session\.designate",
            id="agent list of a user without permission",
        ),
    ],
)
async def test_invalid_cluster_request_is_rejected(
    admin: Client,
    agent: FakeAgent,
    user: Client,
    body: dict[str, Any],
    error: type[errors.BaiError],
    part: str,
) -> None:
    with pytest.raises(error, match=part):
        await user.post("/sessions", {"name": "gang1", "resources": SMALL, **body})
    assert (await user.get("/sessions"))["total"] == 0


async def test_admin_may_designate_agents(api: Api, admin: Client, agent: FakeAgent) -> None:
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    body = {"name": "there", "project": "default", "resources": SMALL}
    with pytest.raises(errors.NotFound, match="no agent nowhere"):
        await admin.post("/sessions", {**body, "agent_list": ["nowhere"]})
    with pytest.raises(errors.InvalidRequest, match="strict, preferred"):
        await admin.post("/sessions", {**body, "agent_list": ["a2"], "agent_selection": "maybe"})
    await admin.post("/sessions", {**body, "agent_list": ["a2"]})
    assert (await wait_for_status(admin, "there", "SCHEDULED"))["agent"] == "a2"


async def test_preempted_cluster_session_returns_to_several_agents(
    api: Api, admin: Client, agent: FakeAgent, user: Client
) -> None:
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    body = {"name": "wide", "resources": {"cpu": "6", "mem": "1g"}, "cluster_size": 2}
    await user.post("/sessions", {**body, "cluster_mode": "multi-node"})
    session = await wait_for_status(user, "wide", "SCHEDULED")
    for fake_agent in (agent, other):
        await fake_agent.prepare()
    await wait_for_status(user, "wide", "PREPARED")
    path = f"/sessions/{session['id']}"
    where = {"user": "user", "server": session["hub_server"]}
    await api.hub.post(f"{path}/launch", where)
    containers = {"container_id": "c1", "sub_containers": {"sub1": "c2"}}
    await api.hub.post(f"{path}/started", containers)
    await wait_for_status(user, "wide", "RUNNING")
    await api.world.manager.lifecycle.apply(
        session["id"], Event.PREEMPTED, "preempted", is_requeued_at_end=True
    )
    await api.hub.post(f"{path}/exited", {"exit_code": 0, "reason": "x"})
    again = await wait_for_status(user, "wide", "SCHEDULED")
    assert again["restart_count"] == 1
    assert {k["agent"] for k in again["kernels"]} == {"a1", "a2"}
