"""Invitations of agents, and machines that join and leave."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NotSignedIn,
    Unavailable,
)
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


def new_credential() -> str:
    return f"bai-agent-{secrets.token_urlsafe(32)}"


async def invite(api: Api, **spec: Any) -> str:
    admin = await api.client("admin")
    return str((await admin.post("/agent-invitations", spec))["token"])


async def join(api: Api, token: str, agent_id: str, credential: str, **spec: Any) -> dict[str, Any]:
    body = {"token": token, "agent_id": agent_id, "credential": credential, **spec}
    return dict(await api.nobody.post("/agent-joins", body))


async def joined(api: Api, agent_id: str = "node-1", **spec: Any) -> tuple[Client, str]:
    credential = new_credential()
    token = await invite(api, **spec)
    await join(api, token, agent_id, credential)
    return api.with_token(credential), token


@pytest.mark.both_databases
async def test_invited_machine_joins_the_group_of_its_invitation(api: Api) -> None:
    admin = await api.client("admin")
    await admin.post("/resource-groups", {"name": "gpu", "engine": "docker"})
    credential, token = new_credential(), await invite(api, resource_group="gpu")
    # `bai-agent join URL --token TOKEN` must not take the token as an option.
    assert token.startswith("bai-join-")
    answer = await join(api, token, "node-1", credential)
    assert (answer["resource_group"], answer["engine"], answer["swarm"]) == ("gpu", "docker", None)
    assert [one["name"] for one in answer["storage"]] == ["local"]
    client = api.with_token(credential)
    state = await client.get("/agents/node-1/membership")
    assert (state["status"], state["kernels"]) == ("", 0)
    # The group that the agent reports has no effect.
    await FakeAgent(client, "node-1", group="default").beat()
    shown = await admin.get("/agents/node-1")
    assert (shown["status"], shown["resource_group"]) == ("ALIVE", "gpu")
    used = (await admin.get("/agent-invitations"))["items"][0]
    assert used["agent_id"] == "node-1" and used["used_at"] is not None
    actions = [one["action"] for one in (await admin.get("/audit-log", limit=3))["items"]]
    assert {"agent.join", "agent-invitation.create"} <= set(actions)


async def test_invitation_is_used_once_but_its_machine_can_repeat_the_call(api: Api) -> None:
    credential, token = new_credential(), await invite(api)
    await join(api, token, "node-1", credential)
    assert (await join(api, token, "node-1", credential))["agent_id"] == "node-1"
    for agent_id, other in (("node-2", credential), ("node-1", new_credential())):
        with pytest.raises(Forbidden, match="was used"):
            await join(api, token, agent_id, other)


async def test_expired_deleted_and_unknown_invitations_are_refused(api: Api) -> None:
    admin = await api.client("admin")
    expired = await invite(api, valid_minutes=1)
    deleted = await admin.post("/agent-invitations", {})
    await admin.delete(f"/agent-invitations/{deleted['id']}")
    api.world.clock.advance(minutes=1)
    for token in (expired, deleted["token"], "unknown"):
        with pytest.raises(Forbidden, match="expired"):
            await join(api, token, "node-1", new_credential())
    with pytest.raises(Forbidden, match="for the resource group default"):
        await join(api, await invite(api), "node-1", new_credential(), resource_group="gpu")
    with pytest.raises(InvalidRequest, match="32 random bytes"):
        await join(api, await invite(api), "node-1", "short")


async def test_unknown_invitations_cause_no_calls_of_the_swarm(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await invite(api)
    monkeypatch.setattr(api.world.manager.cluster.swarm, "_host", "tcp://127.0.0.1:1")
    with pytest.raises(Forbidden):
        await join(api, "unknown", "node-1", new_credential())
    with pytest.raises(Unavailable, match="BAI_SWARM_HOST"):
        await join(api, token, "node-1", new_credential())


async def test_known_id_and_other_engine_are_refused(api: Api) -> None:
    await FakeAgent(api.agent, "node-1").beat()
    token = await invite(api)
    with pytest.raises(Conflict, match="--id"):
        await join(api, token, "node-1", new_credential())
    with pytest.raises(Conflict, match="--engine process"):
        await join(api, token, "node-2", new_credential(), engine="docker")
    # The invitation can still be used.
    await join(api, token, "node-2", new_credential())


async def test_credential_is_valid_only_for_its_agent(api: Api) -> None:
    client, _ = await joined(api)
    for call in (
        client.post("/agents/node-1/drain"),
        client.get("/agents/node-1/membership"),
    ):
        await call
    for call in (
        FakeAgent(client, "node-2").beat(),
        FakeAgent(client, "node-2").work(),
        client.post("/agents/node-2/drain"),
        client.get("/agents/node-2/membership"),
        client.get("/agent-joins/node-2"),
        client.delete("/agents/node-2/membership"),
    ):
        with pytest.raises(Forbidden, match="for the agent node-1"):
            await call


async def test_agent_that_has_left_or_was_deleted_is_signed_out(api: Api) -> None:
    admin = await api.client("admin")
    leaving, token = await joined(api)
    await FakeAgent(leaving, "node-1").beat()
    drained = await leaving.post("/agents/node-1/drain")
    assert drained["schedulable"] is False
    assert (await admin.get("/agents/node-1"))["schedulable"] is False
    await leaving.delete("/agents/node-1/membership")
    deleted, _ = await joined(api, "node-2")
    await FakeAgent(deleted, "node-2").beat(is_leaving=True)
    await admin.delete("/agents/node-2")
    for client, agent_id in ((leaving, "node-1"), (deleted, "node-2")):
        with pytest.raises(NotSignedIn):
            await FakeAgent(client, agent_id).beat()
    assert (await admin.get("/agents"))["total"] == 0
    with pytest.raises(Forbidden, match="was used"):
        await join(api, token, "node-1", new_credential())


async def test_agent_with_sessions_cannot_leave(api: Api) -> None:
    client, _ = await joined(api)
    agent = FakeAgent(client, "node-1")
    await agent.beat()
    user = await api.client("user")
    spec = {"cpu": "1", "mem": "1g"}
    await user.post(
        "/sessions", {"name": "lab-1", "image": "local/session:latest", "resources": spec}
    )
    await api.world.manager.scheduling.scheduler.run_pass()
    await agent.prepare()
    assert (await client.get("/agents/node-1/membership"))["kernels"] == 1
    with pytest.raises(InUse, match="1 session"):
        await client.delete("/agents/node-1/membership")


@pytest.mark.both_databases
async def test_joined_agent_cannot_direct_the_hub_to_another_engine(api: Api) -> None:
    admin = await api.client("admin")
    client, _ = await joined(api)
    agent = FakeAgent(client, "node-1", engine="docker", endpoint="tcp://node-1:2376")
    await agent.beat()
    await agent.beat(endpoint="unix:///var/run/docker.sock")
    shown = await admin.get("/agents/node-1")
    assert shown["endpoint"] == "tcp://node-1:2376"
    assert "reports the endpoint unix:///var/run/docker.sock" in shown["facts"]["notices"][0]
    for url in ("file:///etc/passwd", "tcp://a b"):
        with pytest.raises(InvalidRequest, match="endpoint"):
            await admin.patch("/agents/node-1", {"endpoint": url})
    await agent.beat(endpoint="tcp://10.0.0.7:2376")
    await admin.patch("/agents/node-1", {"endpoint": "tcp://10.0.0.7:2376"})
    await agent.beat()
    shown = await admin.get("/agents/node-1")
    assert shown["endpoint"] == "tcp://10.0.0.7:2376"
    assert not any("endpoint" in notice for notice in shown["facts"]["notices"])
