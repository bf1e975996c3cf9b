"""Resource groups over REST: visibility, default group, links, deletion."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


async def names(client: Client) -> list[str]:
    page = await client.get("/resource-groups")
    return [item["name"] for item in page["items"]]


async def test_resource_group_can_be_created_changed_and_deleted(api: Api) -> None:
    admin = await api.client("admin")
    made = await admin.post("/resource-groups", {"name": "gpu", "engine": "docker"})
    assert made["scheduler"] == "fifo"
    assert made["allowed_session_types"] == ["interactive", "batch", "inference"]
    assert (await admin.patch("/resource-groups/gpu", {"description": "big"}))["engine"] == "docker"
    assert (await admin.get("/resource-groups/gpu"))["description"] == "big"
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/resource-groups", {"name": "gpu"})
    await admin.delete("/resource-groups/gpu")
    with pytest.raises(errors.NotFound):
        await admin.get("/resource-groups/gpu")
    with pytest.raises(errors.NotFound):
        await admin.delete("/resource-groups/gpu")


@pytest.mark.parametrize(
    "body, part",
    [
        pytest.param({"name": "Big One"}, "cannot be the name", id="invalid name"),
        pytest.param({"name": "g1", "engine": "lxc"}, "process, docker", id="unknown engine"),
        pytest.param({"name": "g1", "scheduler": "magic"}, "fifo", id="unknown scheduler"),
        pytest.param(
            {"name": "g1", "allowed_session_types": ["game"]},
            "interactive",
            id="unknown session type",
        ),
        pytest.param(
            {"name": "g1", "scheduler_opts": {"placement": "magic"}},
            "priced, fgd",
            id="unknown placement policy",
        ),
        pytest.param(
            {"name": "g1", "scheduler_opts": {"speed": 1}},
            "pending_timeout",
            id="unknown scheduler option",
        ),
        pytest.param({"name": "g1", "colour": 1}, "colour", id="unknown field"),
        pytest.param({}, "name", id="missing name"),
    ],
)
async def test_invalid_resource_group_is_rejected(
    api: Api, body: dict[str, object], part: str
) -> None:
    admin = await api.client("admin")
    with pytest.raises(errors.InvalidRequest, match=part):
        await admin.post("/resource-groups", body)


async def test_new_default_group_replaces_the_previous_one(api: Api) -> None:
    admin = await api.client("admin")
    await admin.post("/resource-groups", {"name": "new", "is_default": True})
    page = await admin.get("/resource-groups", is_default="true")
    assert [item["name"] for item in page["items"]] == ["new"]


async def test_private_group_is_visible_to_linked_accounts(api: Api) -> None:
    admin, user, user2 = await asyncio.gather(*map(api.client, ("admin", "user", "user2")))
    domain_admin, acme = await api.client("domain-admin"), await api.client("acme-user")
    await admin.post("/resource-groups", {"name": "secret", "is_public": False})
    for client in (user, user2, domain_admin, acme):
        assert await names(client) == ["default"]
    path = "/resource-groups/secret/links"

    link = await admin.put(f"{path}/user/user")
    assert (link["kind"], link["name"]) == ("user", "user")
    assert await names(user) == ["default", "secret"]
    assert await names(user2) == ["default"]
    # A domain admin sees the groups that users of the domain may use.
    assert await names(domain_admin) == ["default", "secret"]
    with pytest.raises(errors.NotFound):
        await user2.get("/resource-groups/secret")
    await admin.delete(f"{path}/user/{link['target']}")
    assert await names(user) == ["default"]

    await admin.put(f"{path}/project/acme%2Fdefault")
    assert await names(acme) == ["default", "secret"]
    assert await names(user) == ["default"]
    await admin.put(f"{path}/domain/default")
    assert await names(user2) == ["default", "secret"]
    await admin.put(f"{path}/keypair/{api.world.keys['user'].access_key}")
    page = await admin.get(path, sort="kind")
    assert [(i["kind"], i["name"]) for i in page["items"][:1]] == [("domain", "default")]
    assert page["total"] == 3


@pytest.mark.parametrize("kind", ["user", "project", "domain", "keypair"])
async def test_linked_accounts_may_create_sessions_in_a_private_group(api: Api, kind: str) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/resource-groups", {"name": "secret", "is_public": False})
    path = f"/resource-groups/secret/links/{kind}"
    target = {
        "user": "user",
        "project": "default%2Fdefault",
        "domain": "default",
        "keypair": api.world.keys["user"].access_key,
    }[kind]
    body = {"resource_group": "secret", "resources": {"cpu": "1", "mem": "256m"}}

    async def expect_denied(who: str) -> None:
        client = await api.client(who)
        template = f"of-{who}"
        saved = {"name": template, "request": body}
        with contextlib.suppress(errors.AlreadyExists):
            await client.post("/session-templates", saved)
        for call in (
            client.post("/sessions", {"name": "lab1", **body}),
            client.post("/bulk-sessions", {"sessions": [{"name": "lab1", **body}]}),
            client.post("/sessions", {"name": "lab1", "template": template}),
            client.get("/sessions/options", resource_group="secret"),
        ):
            with pytest.raises(errors.NotFound, match="secret"):
                await call

    # Without the link, even a superadmin cannot create sessions in the group.
    for who in ("user", "domain-admin", "admin"):
        await expect_denied(who)
    link = await admin.put(f"{path}/{target}")
    made = await user.post("/sessions", {"name": "lab2", **body})
    assert made["resource_group"] == "secret"
    await expect_denied("acme-user")
    if kind in ("user", "keypair"):
        await expect_denied("user2")
    await admin.delete(f"{path}/{link['target']}")
    await expect_denied("user")


async def test_invalid_link_is_rejected(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    path = "/resource-groups/default/links"
    with pytest.raises(errors.NotFound):
        await admin.put(f"{path}/user/nobody")
    # The name is ambiguous: both domains have a project with this name.
    with pytest.raises(errors.NotFound):
        await admin.put(f"{path}/project/default")
    with pytest.raises(errors.InvalidRequest):
        await admin.put(f"{path}/planet/mars")
    with pytest.raises(errors.NotFound):
        await admin.put("/resource-groups/none/links/user/user")
    with pytest.raises(errors.NotFound):
        await admin.delete(f"{path}/user/user")
    for call in (user.get(path), user.put(f"{path}/user/user")):
        with pytest.raises(errors.Forbidden):
            await call


async def test_only_superadmins_may_change_groups(api: Api) -> None:
    for name in ("user", "domain-admin", "monitor"):
        client = await api.client(name)
        for call in (
            client.post("/resource-groups", {"name": "mine"}),
            client.patch("/resource-groups/default", {"is_active": False}),
            client.delete("/resource-groups/default"),
        ):
            with pytest.raises(errors.Forbidden):
                await call


async def test_group_in_use_is_not_deleted(api: Api) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent).beat()
    with pytest.raises(errors.InUse, match="1 agent$"):
        await admin.delete("/resource-groups/default")
    with pytest.raises(errors.InUse, match="1 agent$"):
        await admin.patch("/resource-groups/default", {"engine": "docker"})


async def test_options_and_limits_are_normalized(api: Api) -> None:
    admin = await api.client("admin")
    options = {"placement": "spread", "pending_timeout": "2h", "fair_share": {"half_life_days": 3}}
    body = {"name": "gpu", "scheduler": "fair-share", "scheduler_opts": options}
    made = await admin.post("/resource-groups", {**body, "total_resource_slots": {"cpu": 4}})
    assert made["scheduler_opts"] == {**options, "pending_timeout": 7200}
    assert (made["total_resource_slots"], made["max_concurrent_sessions"]) == ({"cpu": "4"}, None)
    changed = await admin.patch("/resource-groups/gpu", {"max_concurrent_sessions": 3})
    assert (changed["max_concurrent_sessions"], changed["scheduler"]) == (3, "fair-share")


async def test_engine_of_a_group_may_change_after_all_agents_have_left(api: Api) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent).beat()
    await FakeAgent(api.agent, "a2").beat(is_leaving=True)
    with pytest.raises(errors.InUse, match="1 agent$"):
        await admin.patch("/resource-groups/default", {"engine": "docker"})
    await FakeAgent(api.agent).beat(is_leaving=True)
    changed = await admin.patch("/resource-groups/default", {"engine": "docker"})
    assert changed["engine"] == "docker"
