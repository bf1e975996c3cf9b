"""Sessions over REST: lifecycle, validation, permissions, and reports of agent and spawner."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

QUARTER = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}


async def wait_for_status(
    client: Client, key: str, status: str, *, seconds: int = 60
) -> dict[str, Any]:
    """Wait until the session has the status; return the session."""
    session = await client.get(
        f"/sessions/{key}", wait=status, timeout=str(seconds), timeout_seconds=seconds + 10
    )
    assert session["status"] == status, session
    return dict(session)


async def create_running_session(
    api: Api, agent: FakeAgent, name: str, **body: Any
) -> dict[str, Any]:
    """Create a session and bring it to RUNNING with the reports of agent and spawner."""
    user = await api.client("user")
    session = await user.post("/sessions", {"name": name, "resources": QUARTER, **body})
    return await bring_to_running(api, agent, session["id"])


async def bring_to_running(api: Api, agent: FakeAgent, session_id: str) -> dict[str, Any]:
    """Bring a pending session to RUNNING with the reports of agent and spawner."""
    user = await api.client("user")
    # The first placement of a test run may JIT-compile the placement code.
    session = await wait_for_status(user, session_id, "SCHEDULED")
    item = await agent.prepare()
    await wait_for_status(user, session["id"], "PREPARED")
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await agent.beat([agent.running(item)])
    return await wait_for_status(user, session["id"], "RUNNING")


async def test_session_is_placed_started_and_stopped(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post(
        "/sessions", {"name": "lab1", "project": "default", "resources": QUARTER}
    )
    assert (session["status"], session["reasons"]) == ("PENDING", [])
    assert session["image"] == "local/session:latest"
    session = await wait_for_status(user, "lab1", "SCHEDULED")
    assert session["allocations"] == [
        {"agent": "a1", "device": None, "slot": "cpu", "amount": "1", "is_simulated": False},
        {"agent": "a1", "device": None, "slot": "mem", "amount": "1g", "is_simulated": False},
        {
            "agent": "a1",
            "device": "a1-g0",
            "slot": "cuda.shares",
            "amount": "0.25",
            "is_simulated": True,
        },
    ]
    item = await agent.prepare()
    assert item["devices"] == [{"id": "a1-g0", "slot": "cuda.shares", "amount": 250}]
    await wait_for_status(user, "lab1", "PREPARED")
    where = {"user": "user", "server": session["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    assert plan["slots"] == {"cpu": 1000, "mem": 2**30, "cuda.shares": 250}
    assert plan["labels"]["bai.session-id"] == session["id"]
    assert plan["injection"]["environ"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert plan["environ"]["BAI_KERNEL_ID"] == item["kernel_id"]
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    running = await wait_for_status(user, "lab1", "RUNNING")
    assert running["url"] == f"/user/user/{session['hub_server']}/"
    usage = {"cpu_util": 12.5}
    await agent.beat([agent.running(item, usage=usage)])
    assert (await user.get("/sessions/lab1/usage"))["kernels"][0]["usage"] == usage
    stopping = await user.delete("/sessions/lab1")
    assert (stopping["status"], len(stopping["allocations"])) == ("TERMINATING", 3)
    end = {
        "exit_code": 0,
        "reason_code": "stopped",
        "reason": "stopped through the Hub",
        "log": "bye\n",
    }
    for _ in range(2):
        await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await wait_for_status(user, session["id"], "TERMINATED")
    assert (ended["allocations"], ended["result"]) == ([], "undefined")
    assert (await user.get(f"/sessions/{session['id']}/logs"))["log"] == "bye\n"
    steps = (await user.get(f"/sessions/{session['id']}/history"))["items"]
    assert [s["to_status"] for s in steps] == [
        "SCHEDULED",
        "PREPARING",
        "PREPARED",
        "RUNNING",
        "TERMINATING",
        "TERMINATED",
    ]


async def test_session_stopped_for_disk_space_keeps_the_reason(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1")
    (kernel,) = (await user.get("/sessions/lab1"))["kernels"]
    item = {"kernel_id": kernel["id"], "session_id": session["id"]}
    await agent.beat([agent.running(item, usage={"disk_bytes": 1, "disk_limit_bytes": 2})])
    assert (await user.get("/sessions/lab1"))["status"] == "RUNNING"
    why = "stopped for its disk space: it used 51.00 of 50.00 GiB outside of folders"
    await agent.beat([agent.running(item, usage={"disk_bytes": 3, "stop_reason": why})])
    stopping = await wait_for_status(user, session["id"], "TERMINATING")
    assert stopping["status_info"] == why
    end = {"exit_code": 0, "reason_code": "stopped", "log": ""}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await wait_for_status(user, session["id"], "TERMINATED")
    assert (ended["status_info"], ended["result"]) == (why, "failure")


async def test_equal_request_returns_the_existing_session(api: Api, agent: FakeAgent) -> None:
    async with (await api.client("user")).http as http:
        body = {"name": "lab1", "resources": QUARTER}
        made = await http.post("/sessions", json=body)
        again = await http.post("/sessions", json={**body, "resources": QUARTER | {"mem": "1024m"}})
        other = await http.post("/sessions", json={**body, "environ": {"A": "b"}})
    assert (made.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert made.json()["id"] == again.json()["id"]
    assert other.json()["error"] == "already-exists"


async def test_session_that_exceeds_the_free_capacity_is_pending_with_a_reason(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    first = await user.post("/sessions", {"name": "big1", "resources": {"cpu": "6", "mem": "1g"}})
    await wait_for_status(user, "big1", "SCHEDULED")
    await user.post("/sessions", {"name": "big2", "resources": {"cpu": "6", "mem": "1g"}})

    async def reasons(name: str) -> Any:
        return (await user.get(f"/sessions/{name}"))["reasons"]

    pending_reasons = await wait_until_async(lambda: reasons("big2"), 10, "reasons")
    assert "cpu=6 requested, but at most 2 is free" in pending_reasons[0]["message"]
    # The reservation of big2 leaves two cores. Session small takes one of them, so middle, with two
    # cores, must wait.
    await user.post("/sessions", {"name": "small", "resources": {"cpu": "1", "mem": "1g"}})
    await wait_for_status(user, "small", "SCHEDULED")
    await user.post("/sessions", {"name": "middle", "resources": {"cpu": "2", "mem": "1g"}})
    await wait_until_async(lambda: reasons("middle"), 10, "reasons")
    big, middle = [await user.get(f"/sessions/{name}") for name in ("big2", "middle")]
    assert (big["queue_position"], middle["queue_position"]) == (1, 2)
    await user.delete(f"/sessions/{first['id']}")
    await wait_for_status(user, "big2", "SCHEDULED")


async def test_pending_session_is_placed_on_a_new_agent(api: Api, agent: FakeAgent) -> None:
    user = await api.client("user")
    await user.post("/sessions", {"name": "lab1", "resources": {"cpu": "8", "mem": "8g"}})
    await user.post("/sessions", {"name": "lab2", "resources": {"cpu": "8", "mem": "8g"}})
    await wait_for_status(user, "lab1", "SCHEDULED")
    await FakeAgent(api.agent, "a2").beat()
    session = await wait_for_status(user, "lab2", "SCHEDULED")
    assert {a["agent"] for a in session["allocations"]} == {"a2"}


REFUSALS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "name too short": ({"name": "abc"}, errors.InvalidRequest, "cannot be the name of a session"),
    "invalid characters in the name": (
        {"name": "a/../b"},
        errors.InvalidRequest,
        "cannot be the name",
    ),
    "name too long": ({"name": "x" * 65}, errors.InvalidRequest, "cannot be the name"),
    "unknown project": ({"project": "nope"}, errors.NotFound, "not in a project 'nope'"),
    "unknown image": ({"image": "nope:1"}, errors.NotFound, "no image"),
    "invalid image name": ({"image": "N o!"}, errors.InvalidRequest, "not an image name"),
    "unknown resource group": ({"resource_group": "x"}, errors.NotFound, "no resource group"),
    "unknown preset": ({"preset": "x"}, errors.NotFound, "no preset"),
    "session type that users may not create": (
        {"type": "system"},
        errors.InvalidRequest,
        "cannot be created",
    ),
    "quantity is not a multiple of the step": (
        {"resources": {"cuda.shares": "0.255"}},
        errors.InvalidRequest,
        "not a multiple of 0.01",
    ),
    "shares and devices of one family": (
        {"resources": {"cuda.shares": "0.5", "cuda.device": "1"}},
        errors.InvalidRequest,
        "mutually exclusive",
    ),
    "0 cores": ({"resources": {"cpu": "0"}}, errors.InvalidRequest, "more than 0"),
    "unknown slot": ({"resources": {"gpu": "1"}}, errors.InvalidRequest, "not a resource"),
    "shared memory above the memory": ({"shared_memory": "1g"}, errors.InvalidRequest, "less than"),
    "reserved environment variable": (
        {"environ": {"BAI_X": "1"}},
        errors.InvalidRequest,
        "reserved",
    ),
    "unknown folder": ({"mounts": [{"vfolder": "x"}]}, errors.NotFound, "x"),
    "priority out of range": ({"priority": 101}, errors.InvalidRequest, "between 0 and 100"),
    "owner set by a user": ({"owner": "user2"}, errors.Forbidden, "only administrators"),
    "hub_server set by a user": ({"hub_server": "x"}, errors.Forbidden, "only the Hub"),
    "unknown field": ({"nmae": "x"}, errors.InvalidRequest, "nmae"),
    "more than the capacity of any agent": (
        {"resources": {"cpu": "9"}},
        errors.InsufficientResources,
        "no agent could ever hold cpu=9 mem=256m: resource group default: "
        "cpu=9 requested, but the largest agent offers 8",
    ),
    "devices that no agent has": (
        {"resources": {"rocm.shares": "0.5"}},
        errors.InsufficientResources,
        "rocm.shares=0.5 requested",
    ),
}


async def test_invalid_session_request_is_rejected(agent: FakeAgent, user: Client) -> None:
    for case, (body, error, part) in REFUSALS.items():
        with pytest.raises(error) as caught:
            await user.post("/sessions", {"name": "lab1", **body})
        assert part in str(caught.value), case
    assert (await user.get("/sessions"))["total"] == 0


async def test_foreign_project_and_folder_are_not_found(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await agent.beat()
    admin, other = await api.client("admin"), await api.client("user2")
    (project,) = (await admin.get("/projects", domain="acme"))["items"]
    folder = await other.post("/vfolders", {"name": "theirs"})
    for spec in ({"project": project["id"]}, {"mounts": [{"vfolder": folder["id"]}]}):
        with pytest.raises(errors.NotFound):
            await user.post("/sessions", {"name": "foreign", "project": "default", **spec})
    assert (await admin.get("/sessions"))["total"] == 0


async def test_request_is_accepted_after_an_agent_reports_enough_capacity(
    agent: FakeAgent, user: Client
) -> None:
    big = {"name": "large", "resources": {"cpu": "12", "mem": "1g"}}
    with pytest.raises(errors.InsufficientResources, match="the largest agent offers 8"):
        await user.post("/sessions", big)
    await agent.beat(slots={"cpu": "16", "mem": "16g"})
    created = await user.post("/sessions", big)
    assert (created["status"], created["kernels"][0]["hostname"]) == ("PENDING", "main1")
    shown = await user.get("/sessions/large")
    assert shown.keys() == created.keys()
    # Do not compare the agents: the session may have been placed in the meantime.
    assert [k["id"] for k in created["kernels"]] == [k["id"] for k in shown["kernels"]]
    for name in ("requested", "created_at", "owner", "project", "mounts", "url"):
        assert created[name] == shown[name], name


async def test_waiting_work_items_are_delivered_together(agent: FakeAgent, user: Client) -> None:
    names = ("lab1", "lab2", "lab3")
    for name in names:
        await user.post("/sessions", {"name": name, "resources": {"cpu": "1", "mem": "1g"}})
    for name in names:
        await wait_for_status(user, name, "SCHEDULED")
    items = await agent.work(5)
    assert [item["kind"] for item in items] == ["prepare"] * 3
    assert all(item["uid"] == items[0]["uid"] for item in items)
    for name in names:
        assert (await user.get(f"/sessions/{name}"))["status"] == "PREPARING"


async def test_exceeded_limit_is_reported_with_the_remaining_amount(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch("/domains/default", {"total_resource_slots": {"cuda.shares": "0.5"}})
    await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    with pytest.raises(errors.QuotaExceeded) as caught:
        await user.post("/sessions", {"name": "lab2", "resources": {"cuda.shares": "0.75"}})
    violation = caught.value.details["violations"][0]
    assert (violation["scope"], violation["limit"], violation["left"]) == ("domain", "0.5", "0.25")
    await user.post("/sessions", {"name": "lab2", "resources": {"cuda.shares": "0.5"}})

    async def reason() -> Any:
        return (await user.get("/sessions/lab2"))["reasons"]

    reasons = await wait_until_async(reason, 10, "the reason")
    assert (reasons[0]["check"], reasons[0]["left"]) == ("policy", "0.25")
    await admin.patch("/domains/default", {"total_resource_slots": {"cuda.shares": "0.75"}})
    await wait_for_status(user, "lab2", "SCHEDULED")


async def test_session_of_another_user_is_hidden(api: Api, agent: FakeAgent, user: Client) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    for name in ("user2", "acme-user"):
        other = await api.client(name)
        for call in (
            other.get(f"/sessions/{session['id']}"),
            other.delete(f"/sessions/{session['id']}"),
            other.patch(f"/sessions/{session['id']}", {"name": "mine"}),
            other.get(f"/sessions/{session['id']}/logs"),
            other.get("/events", session=session["id"]),
        ):
            with pytest.raises(errors.NotFound):
                await call
        assert (await other.get("/sessions"))["total"] == 0
    admin = await api.client("domain-admin")
    assert (await admin.get("/sessions/lab1"))["id"] == session["id"]
    await admin.delete("/sessions/lab1")
    assert (await user.get("/sessions/lab1"))["status"] == "CANCELLED"


async def test_launch_with_wrong_user_or_server_is_not_found(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    path = f"/sessions/{session['id']}/launch"
    where = {"user": "user", "server": session["hub_server"]}
    with pytest.raises(errors.Conflict):
        await api.hub.post(path, where)
    await agent.prepare()
    for forged in ({**where, "user": "user2"}, {**where, "server": "other"}):
        with pytest.raises(errors.NotFound):
            await api.hub.post(path, forged)
    with pytest.raises(errors.Forbidden):
        await user.post(path, where)
    await api.hub.post(path, where)
    await user.delete("/sessions/lab1")
    with pytest.raises(errors.Conflict):
        await api.hub.post(path, where)
    with pytest.raises(errors.Conflict):
        await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": None})
    await wait_for_status(user, session["id"], "CANCELLED")


async def test_stop_before_launch_ends_the_session_at_once(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1"})
    await agent.prepare()
    await wait_for_status(user, "lab1", "PREPARED")
    for _ in range(2):
        stopped = await user.delete("/sessions/lab1")
        assert (stopped["status"], stopped["result"]) == ("CANCELLED", "undefined")


async def test_concurrent_stops_of_a_session_have_one_audit_entry(api: Api, user: Client) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    await asyncio.gather(*(user.delete("/sessions/lab1") for _ in range(8)))
    admin = await api.client("admin")
    entries = (await admin.get("/audit-log", action="session.stop"))["items"]
    assert [entry["entity_id"] for entry in entries] == [session["id"]]


@pytest.mark.parametrize("by", ["REST", "the Hub"])
async def test_start_cancelled_by_the_user_is_not_an_error(
    api: Api, agent: FakeAgent, user: Client, by: str
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    await agent.prepare()
    where = {"user": "user", "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    if by == "REST":
        assert (await user.delete("/sessions/lab1"))["status"] == "TERMINATING"
    end = {"exit_code": 0, "reason_code": "stopped", "log": ""}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await wait_for_status(user, session["id"], "CANCELLED")
    assert (ended["result"], ended["allocations"]) == ("undefined", [])


async def test_failed_preparation_fails_the_session(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    item = (await agent.work(5))[0]
    await agent.report(item, "progress", progress={"stage": "pull", "percent": 40})
    shown = await user.get("/sessions/lab1")
    assert (shown["status"], shown["progress"]["percent"]) == ("PREPARING", 40)
    error = {"code": "not-found", "message": "no image local/session:latest on a1"}
    await agent.report(item, "failed", error=error)
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert ended["status_info"] == "no image local/session:latest on a1"
    await agent.report(item, "done", injection={})
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "ERROR"


async def test_session_whose_storage_fails_on_an_agent_starts_on_another_one(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    (item,) = await agent.work(5)
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    text = "the storage of the folder for /data is mounted read-only on the chosen agent"
    error = {"code": "unavailable", "message": text, "is_of_storage": True}
    await agent.report(item, "failed", error=error)
    (item,) = await other.work(5)
    (shown,) = (await user.get("/sessions/lab1"))["kernels"]
    assert shown["agent"] == "a2"
    events = (await user.get(f"/sessions/{session['id']}/history"))["items"]
    assert [one["reason"] for one in events if one["event"] == "displaced"] == [f"a1: {text}"]
    # The start fails there, too. There is no third agent, so the session returns to the first
    # agent, where it ends.
    await other.report(item, "failed", error=error)
    (item,) = await agent.work(5)
    await agent.report(item, "failed", error=error)
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert (ended["status_info"], ended["allocations"]) == (text, [])


async def test_session_without_a_free_subnet_on_its_agent_starts_on_another_one(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    (item,) = await agent.work(5)
    # After the placement of this session, another session has taken the last subnet.
    await agent.beat(is_network_full=True)
    text = "all subnets of 10.0.0.0/26, the network pool of the machine, are in use"
    error = {"code": "unavailable", "message": text, "is_of_network": True}
    await agent.report(item, "failed", error=error)
    waiting = await wait_for_status(user, session["id"], "PENDING")
    assert waiting["allocations"] == []
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    assert await other.work(5)
    (kernel,) = (await user.get("/sessions/lab1"))["kernels"]
    assert kernel["agent"] == "a2"
    events = (await user.get(f"/sessions/{session['id']}/history"))["items"]
    assert [one["reason"] for one in events if one["event"] == "displaced"] == [f"a1: {text}"]


async def test_exit_during_start_is_an_error(api: Api, agent: FakeAgent, user: Client) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    await agent.prepare()
    where = {"user": "user", "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    end = {"exit_code": 127, "reason": "exited-at-start", "log": "no such file"}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert (ended["exit_code"], ended["result"]) == (127, "failure")


async def test_killed_kernel_fails_the_session(api: Api, agent: FakeAgent) -> None:
    session = await create_running_session(api, agent, "lab1")
    kernel = {"kernel_id": session["kernel_id"], "session_id": session["id"]}
    dead = {**kernel, "container_id": "c1", "is_running": False, "exit_code": 137}
    await agent.beat(None)
    api.world.clock.advance(seconds=20)
    for _ in range(2):
        await agent.beat([dead])
    user = await api.client("user")
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert (ended["exit_code"], ended["allocations"]) == (137, [])
    assert "exit code 137" in ended["status_info"]
    for _ in range(2):
        api.world.clock.advance(seconds=30)
        await agent.beat([dead])
    items = await agent.work(5)
    assert [(i["kind"], i["kernel_id"]) for i in items] == [("remove", session["kernel_id"])]
    await agent.report(items[0])
    await agent.beat([])
    assert await agent.work() == []


async def test_unknown_kernel_is_removed_from_the_agent(api: Api, agent: FakeAgent) -> None:
    stray = agent.running({"kernel_id": "k-unknown", "session_id": "s-unknown"})
    await agent.beat([stray])
    assert await agent.work() == []
    api.world.clock.advance(seconds=30)
    await agent.beat([stray])
    assert [i["kernel_id"] for i in await agent.work()] == ["k-unknown"]


async def test_logs_of_a_running_session_come_from_its_agent(api: Api, agent: FakeAgent) -> None:
    await create_running_session(api, agent, "lab1")
    user = await api.client("user")
    asked = asyncio.create_task(user.get("/sessions/lab1/logs"))
    item = (await agent.work(5))[0]
    assert item["kind"] == "logs"
    await agent.report(item, log="line 1\n")
    assert await asked == {
        "session_id": item["session_id"],
        "kernel": "main1",
        "log": "line 1\n",
        "is_live": True,
        "has_times": False,
    }


async def test_hub_creates_a_session_for_its_start_page(api: Api, agent: FakeAgent) -> None:
    body = {"name": "My Server!", "owner": "user", "hub_server": "srv", "project": "default"}
    with pytest.raises(errors.InvalidRequest, match="for example My-Server"):
        await api.hub.post("/sessions", body)
    body = {"name": "My-Server", "owner": "user", "hub_server": "srv", "project": "default"}
    session = await api.hub.post("/sessions", body)
    assert (session["name"], session["hub_server"], session["started_by"]) == (
        "My-Server",
        "srv",
        "hub",
    )
    listed = await api.hub.get("/sessions", hub_user="user", hub_server="srv")
    assert [s["id"] for s in listed["items"]] == [session["id"]]
    detached = await api.hub.post(f"/sessions/{session['id']}/detach", {})
    assert detached["started_by"] == "manager"
    assert (await api.hub.get("/sessions/options", owner="user"))["project"] is not None
    with pytest.raises(errors.NotFound):
        await api.hub.post("/sessions", {**body, "owner": "nobody"})
    default = await api.hub.post("/sessions", {"owner": "user2", "hub_server": ""})
    assert (default["name"], default["hub_server"], default["url"]) == (
        "default",
        "",
        "/user/user2/",
    )


async def test_session_is_renamed_to_an_unused_name(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1"})
    await user.post("/sessions", {"name": "lab2"})
    with pytest.raises(errors.AlreadyExists):
        await user.patch("/sessions/lab1", {"name": "lab2"})
    assert (await user.patch("/sessions/lab1", {"name": "lab3"}))["name"] == "lab3"


async def test_options_show_the_resources_that_are_available_now(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await (await api.client("admin")).patch(
        "/domains/default", {"total_resource_slots": {"cpu": "6", "cuda.shares": "1"}}
    )
    await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    options = await user.get("/sessions/options", project="default")
    assert options["limits"]["cpu"] == {
        "min": "0.001",
        "max": "6",
        "now": "5",
        "allowed": "6",
        "largest": "8",
        "step": "0.001",
        "in_force": [],
        "enforcement": None,
    }
    assert options["device_models"] == [
        {"family": "cuda", "model": "", "memory_bytes": 16 * 2**30, "count": 2}
    ]
    assert options["limits"]["cuda.shares"]["max"] == "1"
    assert options["limits"]["cuda.shares"]["now"] == "0.75"
    # "none", because the agent has not reported an enforcement level.
    assert options["limits"]["cuda.shares"]["enforcement"] == "none"
    assert options["limits"]["cuda.device"]["now"] == "1"
    assert options["limits"]["mem"]["now"] == "15g"
    assert options["resource_group"] == "default"
    assert {p["name"]: p["allocatable"] for p in options["presets"]}["cpu-small"] is True
    assert options["images"][0]["name"] == "local/session:latest"


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ("keypair-policies", {"max_pending_sessions": 1}),
        ("user-policies", {"max_pending_sessions": 1}),
        ("keypair-policies", {"max_pending_slots": {"cpu": "7"}}),
    ],
)
async def test_nothing_can_start_now_if_no_more_pending_sessions_are_allowed(
    api: Api, agent: FakeAgent, user: Client, policy: str, limit: dict[str, Any]
) -> None:
    async def amounts() -> set[str]:
        options = await user.get("/sessions/options", project="default")
        return {limit["now"] for limit in options["limits"].values()}

    await (await api.client("admin")).patch(f"/{policy}/default", limit)
    # The agent has too little memory for both sessions, so the second session remains pending.
    await user.post("/sessions", {"name": "lab1", "resources": {"cpu": "1", "mem": "10g"}})
    await wait_for_status(user, "lab1", "SCHEDULED")
    assert "0" not in await amounts()
    await user.post("/sessions", {"name": "lab2", "resources": {"cpu": "7", "mem": "10g"}})
    # One core is the minimum of the image.
    with pytest.raises(errors.QuotaExceeded):
        await user.post("/sessions", {"name": "lab3", "resources": {"cpu": "1", "mem": "1g"}})
    assert await amounts() == {"0"}
    presets = (await user.get("/presets", project="default"))["items"]
    assert {preset["allocatable"] for preset in presets} == {False}
    await user.delete("/sessions/lab2")
    assert "0" not in await amounts()


async def test_quotas_include_own_resources_on_a_drained_agent(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    await (await api.client("admin")).patch("/agents/a1", {"schedulable": False})
    quotas = await user.get("/sessions/quotas")
    own = {one["slot"]: (one["used"], one["free"], one["total"]) for one in quotas["mine"]}
    assert own == {
        "cpu": ("1", "0", "1"),
        "cuda.shares": ("0.25", "0", "0.25"),
        "mem": ("1g", "0", "1g"),
    }
    assert quotas["resources"] == []


async def test_quotas_name_the_limiting_scope(api: Api, agent: FakeAgent, user: Client) -> None:
    await (await api.client("admin")).patch(
        "/domains/default", {"total_resource_slots": {"cpu": "4"}}
    )
    await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    quotas = await user.get("/sessions/quotas")
    assert (quotas["project"], quotas["resource_group"]) == ("default", "default")
    scopes = {scope["kind"]: scope for scope in quotas["scopes"]}
    cpu = next(one for one in scopes["domain"]["slots"] if one["slot"] == "cpu")
    assert cpu == {
        "slot": "cpu",
        "used": "1",
        "limit": "4",
        "left": "3",
        "percent": 25,
        "is_limiting": True,
    }
    used = next(one for one in scopes["user"]["slots"] if one["slot"] == "cpu")
    assert (used["used"], used["limit"], used["is_limiting"]) == ("1", None, False)
    resources = {one["slot"]: one for one in quotas["resources"]}
    assert resources["cpu"]["used"] == "1"
    assert resources["cuda.shares"]["used"] == "0.25"
    # 7 cores of the agent are free, but the domain's limit leaves 3. The devices have no quota.
    mine = {one["slot"]: one for one in quotas["mine"]}
    assert [mine["cpu"][key] for key in ("used", "free", "total", "percent")] == ["1", "3", "4", 25]
    assert (mine["cuda.shares"]["used"], mine["cuda.shares"]["free"]) == ("0.25", "1.75")
    # ``mine`` does not include sessions of other users.
    theirs = await (await api.client("user2")).get("/sessions/quotas")
    assert {one["used"] for one in theirs["mine"]} == {"0"}


async def test_unhealthy_device_is_not_counted_in_the_quotas(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    def slots(quotas: dict[str, Any]) -> dict[str, str]:
        return {one["slot"]: one["total"] for one in quotas["resources"]}

    before = slots(await user.get("/sessions/quotas"))
    assert before["cuda.shares"] == "2" and "cuda.device" not in before
    first, second = (
        {"id": f"a1-g{n}", "family": "cuda", "index": n, "memory_bytes": 2**34} for n in range(2)
    )
    await agent.beat(devices=[first, {**second, "is_healthy": False}])
    assert slots(await user.get("/sessions/quotas")) == {**before, "cuda.shares": "1"}


async def test_sessions_are_filtered_by_agent_and_cluster_mode(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    for filters, count in (
        ({"agent": "a1"}, 1),
        ({"agent__contains": "A"}, 1),
        ({"agent__in": "a0,a1"}, 1),
        ({"agent": "a2"}, 0),
        ({"cluster_mode": "single-node"}, 1),
        ({"cluster_mode": "multi-node"}, 0),
    ):
        page = await user.get("/sessions", **filters)
        assert [one["id"] for one in page["items"]] == [session["id"]] * count, filters
    assert (await (await api.client("user2")).get("/sessions", agent="a1"))["total"] == 0
    with pytest.raises(errors.InvalidRequest, match="cannot be sorted by agent"):
        await user.get("/sessions", sort="agent")


async def test_options_contain_the_notices_of_the_agents_of_a_group(
    agent: FakeAgent, user: Client
) -> None:
    await agent.beat(facts={"notices": ["Sessions are not isolated here."]})
    options = await user.get("/sessions/options", project="default")
    assert options["resource_groups"][0]["notices"] == ["Sessions are not isolated here."]


async def test_kernels_and_allocations_are_listed(api: Api, agent: FakeAgent, user: Client) -> None:
    session = await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    await wait_for_status(user, "lab1", "SCHEDULED")
    held = await user.get("/allocations", sort="slot")
    assert [(h["slot"], h["amount"]) for h in held["items"]] == [
        ("cpu", "1"),
        ("cuda.shares", "0.25"),
        ("mem", "1g"),
    ]
    await user.delete("/sessions/lab1")
    assert (await user.get("/allocations"))["total"] == 0
    assert (await user.get("/allocations", all="true"))["total"] == 3
    assert (await user.get("/kernels"))["items"][0]["session_id"] == session["id"]
    assert (await (await api.client("user2")).get("/kernels"))["total"] == 0


async def test_events_contain_only_sessions_that_the_caller_may_read(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    other = await api.client("user2")
    received: list[dict[str, Any]] = []
    async with user.stream("/events") as stream:
        lines = stream.aiter_lines()
        assert (await anext(lines)) == ": open"
        await other.post("/sessions", {"name": "theirs"})
        session = await user.post("/sessions", {"name": "lab1"})
        while len(received) < 2:
            line = await asyncio.wait_for(anext(lines), 10)
            if line.startswith("data: "):
                received.append(json.loads(line.removeprefix("data: ")))
        assert {event["session_id"] for event in received} == {session["id"]}
        assert [event["status"] for event in received] == ["PENDING", "SCHEDULED"]
        assert {event["owner_id"] for event in received} == {session["owner_id"]}


async def test_invited_user_receives_an_event_without_content(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    other = await api.client("user2")
    await user.post("/vfolders", {"name": "shared"})
    async with user.stream("/events") as own, other.stream("/events") as theirs:
        lines, own_lines = theirs.aiter_lines(), own.aiter_lines()
        assert (await anext(lines), await anext(own_lines)) == (": open", ": open")
        body = {"user": "user2", "permission": "ro"}
        await user.post("/vfolders/shared/invitations", body)
        while not (line := await asyncio.wait_for(anext(lines), 10)).startswith("data: "):
            pass
        event = {"kind": "invitation", "session_id": "", "status": None, "folder_id": ""}
        event["owner_id"] = (await other.get("/me"))["id"]
        assert json.loads(line.removeprefix("data: ")) == event
        # The inviter gets no event about the invitation. The first event is about a new session.
        await user.post("/sessions", {"name": "lab1"})
        while not (line := await asyncio.wait_for(anext(own_lines), 10)).startswith("data: "):
            pass
        assert json.loads(line.removeprefix("data: "))["kind"] == "status"


async def test_folder_of_a_live_session_cannot_be_trashed(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    folder = await user.post("/vfolders", {"name": "data"})
    mounts = [{"vfolder": "data", "path": "/home/work/in", "permission": "ro"}]
    session = await user.post("/sessions", {"name": "lab1", "mounts": mounts})
    assert session["mounts"][0] | {"vfolder_id": folder["id"]} == session["mounts"][0]
    with pytest.raises(errors.Conflict):
        await user.delete("/vfolders/data")
    item = await agent.prepare()
    assert [(m["target"], m["read_only"]) for m in item["mounts"]] == [("/home/work/in", True)]
    twice = [*mounts, {**mounts[0], "vfolder": folder["id"]}]
    with pytest.raises(errors.InvalidRequest, match="/home/work/in"):
        await user.post("/sessions", {"name": "lab2", "mounts": twice})
    await user.delete("/sessions/lab1")
    await user.delete("/vfolders/data")
