"""Cluster sessions and draining of agents with `bai`, against a real manager with a fake agent."""

from __future__ import annotations

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai

SMALL = ("-r", "cpu=1", "-r", "mem=1g")


async def test_invitation_notes_that_other_machines_cannot_use_a_loopback_address(
    bai: Bai,
) -> None:
    made = await bai("admin", "agent", "invite", by="admin")
    assert made.code == 0 and made.stdout.startswith("bai-agent join http://127.0.0.1:")
    assert "other machines cannot reach the hub at 127.0.0.1" in made.stderr


async def test_cluster_session_has_a_log_per_kernel(bai: Bai, api: Api, agent: FakeAgent) -> None:
    create = ("session", "create", "cluster1", *SMALL, "--cluster-size")
    refused = await bai(*create, "2", by="user")
    assert (refused.code, "at most 1" in refused.stderr) == (3, True), refused.stderr
    admin = await api.client("admin")
    for policy in (await admin.get("/keypair-policies"))["items"]:
        path = f"/keypair-policies/{policy['name']}"
        await admin.patch(path, {"max_containers_per_session": 2})

    made = await bai(*create, "2", "--cluster-mode", "multi-node", "--json", by="user")
    session = made.document
    assert (session["cluster_size"], session["cluster_mode"]) == (2, "multi-node")
    for item in await agent.work(5):
        await agent.report(item, injection={"network": "n"})
    path = f"/sessions/{session['id']}"
    user = await api.client("user")
    await user.get(path, wait="PREPARED", timeout="10")
    await api.hub.post(f"{path}/launch", {"user": "user", "server": session["hub_server"]})
    started = {"container_id": "c1", "sub_containers": {"sub1": "c2"}}
    await api.hub.post(f"{path}/started", started)
    info = await bai("session", "info", "cluster1", by="user")
    assert info.code == 0 and "sub1" in info.stdout
    end = {"exit_code": 0, "reason": "exited", "log": "of main\n", "sub_logs": {"sub1": "of sub\n"}}
    await api.hub.post(f"{path}/exited", end)

    logs = ("session", "logs", "cluster1")
    assert (await bai(*logs, by="user")).stdout == "of main\n"
    assert (await bai(*logs, "--kernel", "sub1", by="user")).stdout == "of sub\n"
    missing = await bai(*logs, "--kernel", "sub7", "--json", by="user")
    assert missing.code == 4 and "main1, sub1" in missing.error["message"]


async def test_invalid_cluster_options_are_rejected(bai: Bai, agent: FakeAgent) -> None:
    create = ("session", "create", "cluster1", *SMALL)
    for arguments in (("--cluster-size", "0"), ("--cluster-mode", "ring")):
        assert (await bai(*create, *arguments, by="user")).code == 2
    assert (await bai("session", "ls", "--json", by="user")).document["items"] == []


async def test_drained_agent_gets_no_sessions(bai: Bai, api: Api, agent: FakeAgent) -> None:
    drained = await bai("admin", "agent", "drain", "a1")
    text = "a1 accepts no new sessions; running sessions continue\n"
    assert (drained.code, drained.stdout) == (0, text)
    made = (await bai("session", "create", "lab1", *SMALL, "--json", by="user")).document
    assert (await agent.work(0.5), made["status"]) == ([], "PENDING")
    shown = await bai("admin", "agent", "undrain", "a1", "--json")
    assert shown.document["schedulable"] is True
    assert [item["session_id"] for item in await agent.work(5)] == [made["id"]]
    assert (await bai("admin", "agent", "drain", "nowhere")).code == 4
    assert (await bai("admin", "agent", "drain", "a1", by="user")).code != 0
