"""Administrators create sessions that another user owns."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client, Keypair
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


async def create(client: Client, owner: str, name: str = "lab1", **fields: Any) -> dict[str, Any]:
    body = {"name": name, "owner": owner, "resources": SMALL, **fields}
    return dict(await client.post("/sessions", body))


async def add_user(api: Api, name: str, **fields: Any) -> Client:
    """Create a user and return the user's client."""
    admin = await api.client("admin")
    body = {"username": name, "email": f"{name}@example.com", "password": "Correct-horse-7"}
    keypair = (await admin.post("/users", {"domain": "default", **body, **fields}))["keypair"]
    return Client(api.url, Keypair(keypair["access_key"], keypair["secret_key"]))


async def error_of(client: Client, owner: str) -> tuple[str, str]:
    with pytest.raises(errors.BaiError) as caught:
        await create(client, owner)
    return caught.value.code, caught.value.message.replace(repr(owner), "NAME")


@pytest.mark.parametrize("caller", ["admin", "domain-admin"])
async def test_session_belongs_to_the_owner_and_is_audited_on_behalf_of_the_owner(
    api: Api, agent: FakeAgent, caller: str
) -> None:
    client, user = await api.client(caller), await api.client("user")
    session = await create(client, "user", mounts=[], priority=1)
    assert session["owner"] == "user"
    assert session["url"].startswith("/user/user/")
    assert [s["id"] for s in (await user.get("/sessions", owner="user"))["items"]] == [
        session["id"]
    ]

    admin = await api.client("admin")
    entry = (await admin.get("/audit-log", action="session.create"))["items"][0]
    assert (entry["actor"], entry["on_behalf_of"]) == (caller, "user")
    seen = (await user.get("/audit-log/mine", action="session.create"))["items"]
    assert [(e["actor"], e["on_behalf_of"]) for e in seen] == [(caller, "user")]
    # Later actions of the administrator are not on behalf of the owner.
    await client.delete(f"/sessions/{session['id']}")
    stopped = (await admin.get("/audit-log", action="session.stop"))["items"]
    assert [e["on_behalf_of"] for e in stopped] == [""]


async def test_an_own_session_is_not_on_behalf_of_anyone(api: Api, agent: FakeAgent) -> None:
    admin = await api.client("admin")
    await create(admin, "admin")
    entry = (await admin.get("/audit-log", action="session.create"))["items"][0]
    assert entry["on_behalf_of"] == ""


async def test_limits_are_those_of_the_owner(api: Api, agent: FakeAgent) -> None:
    admin = await api.client("admin")
    small = {"name": "small", "max_priority": 5, "total_resource_slots": {"cpu": "1"}}
    await admin.post("/keypair-policies", small)
    key = api.world.keys["user"].access_key
    await admin.patch(f"/keypairs/{key}", {"resource_policy": "small"})
    with pytest.raises(errors.BaiError, match="priority"):
        await create(admin, "user", priority=50)
    with pytest.raises(errors.QuotaExceeded):
        await create(admin, "user", resources={"cpu": "2", "mem": "1g"}, priority=1)
    preview = {"owner": "user", "resources": {"cpu": "2", "mem": "1g"}, "priority": 1}
    problems = (await admin.post("/sessions/preview", preview))["problems"]
    assert [p["field"] for p in problems] == ["resources.cpu"]
    options = await admin.get("/sessions/options", owner="user")
    assert options["limits"]["cpu"]["allowed"] == "1"


async def test_only_administrators_create_for_others_and_never_for_a_higher_role(
    api: Api, agent: FakeAgent
) -> None:
    foreign_admin = await add_user(api, "acme-admin", domain="acme", role="admin")
    await add_user(api, "inactive", status="inactive")
    domain_admin = await api.client("domain-admin")
    unknown = await error_of(domain_admin, "nobody")
    assert unknown[0] == "not-found"
    for caller, owner, code in (
        ("user", "user2", "forbidden"),
        ("user", "nobody", "forbidden"),
        ("monitor", "user", "forbidden"),
        ("domain-admin", "admin", "forbidden"),
        ("domain-admin", "monitor", "forbidden"),
        # A monitor cannot own sessions.
        ("admin", "monitor", "forbidden"),
        ("domain-admin", "inactive", "forbidden"),
        ("admin", "inactive", "forbidden"),
    ):
        assert (await error_of(await api.client(caller), owner))[0] == code, (caller, owner)
    # Users of other domains look like unknown users.
    assert await error_of(foreign_admin, "user") == await error_of(foreign_admin, "nobody")
    assert await error_of(domain_admin, "acme-admin") == unknown
    with pytest.raises(errors.NotFound):
        await domain_admin.get("/sessions/options", owner="acme-admin")
    with pytest.raises(errors.Forbidden):
        await (await api.client("user")).get("/sessions/options", owner="user2")
    assert (await (await api.client("admin")).get("/sessions"))["total"] == 0
    await foreign_admin.close()


async def test_domain_admins_cannot_mount_what_others_share_with_the_owner(
    api: Api, agent: FakeAgent
) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    domain_admin = await api.client("domain-admin")
    await admin.post("/vfolders", {"name": "secret"})
    await api.share_folder("admin", "secret", "user", "rw")
    await user.post("/vfolders", {"name": "data"})
    with pytest.raises(errors.Forbidden, match="do not manage"):
        await create(domain_admin, "user", mounts=[{"vfolder": "secret"}])
    offered = await domain_admin.get("/sessions/options", owner="user")
    assert [folder["name"] for folder in offered["vfolders"]] == ["data"]
    own = await create(domain_admin, "user", mounts=[{"vfolder": "data"}])
    assert [mount["vfolder"] for mount in own["mounts"]] == ["data"]
    both = [{"vfolder": "secret"}, {"vfolder": "data"}]
    assert len((await create(admin, "user", "lab2", mounts=both))["mounts"]) == 2
    assert len((await create(user, "user", "lab3", mounts=both))["mounts"]) == 2


async def test_bulk_request_creates_sessions_for_another_user(api: Api, agent: FakeAgent) -> None:
    admin = await api.client("admin")
    request = [{"name": name, "resources": SMALL} for name in ("task-1", "task-2")]
    created = await admin.post("/bulk-sessions", {"owner": "user", "sessions": request})
    assert [session["owner"] for session in created["items"]] == ["user", "user"]
    with pytest.raises(errors.Forbidden):
        await (await api.client("user2")).post(
            "/bulk-sessions", {"owner": "user", "sessions": request}
        )
