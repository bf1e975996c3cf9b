"""Transfers of folders to another owner, and moves of users to another domain."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import Conflict, Forbidden, NotFound
from bai_services.db import schema
from bai_services.db.tables import accounts as tables
from tests.testbed.manager import Api


@pytest.fixture
async def admin(api: Api) -> Client:
    await api.world.manager.folders.vfolders.start()
    return await api.client("admin")


async def shared_folder(api: Api) -> tuple[str, str]:
    """Create a folder of *user*, share it with *user2*, and invite *monitor*.

    Return the ids of the folder and the invitation.
    """
    user = await api.client("user")
    folder = str((await user.post("/vfolders", {"name": "data"}))["id"])
    await api.share_folder("user", folder, "user2")
    grant = await user.put(f"/vfolders/{folder}/grants/monitor", {})
    return folder, str(grant["invitation_id"])


async def transfer(api: Api, folder: str, to: str) -> None:
    await (await api.client("admin")).put(f"/vfolders/{folder}/owner", {"user": to})
    await api.world.manager.folders.vfolders.wait_for_tasks()


async def assert_not_shared(api: Api, folder: str, invitation: str) -> None:
    admin, grantee = await api.client("admin"), await api.client("user2")
    assert (await admin.get(f"/vfolders/{folder}/grants"))["items"] == []
    statuses = {
        one["invitee"]: one["status"]
        for one in (await admin.get(f"/vfolders/{folder}/invitations"))["items"]
    }
    assert statuses == {"user2": "accepted", "monitor": "canceled"}
    with pytest.raises(NotFound):
        await grantee.get(f"/vfolders/{folder}")
    with pytest.raises(Conflict):
        await (await api.client("monitor")).post(f"/vfolder-invitations/{invitation}/accept")


async def test_transfer_to_another_domain_ends_the_access_of_the_old_domain(
    api: Api, admin: Client
) -> None:
    folder, invitation = await shared_folder(api)
    await transfer(api, folder, "acme-user")
    assert (await admin.get(f"/vfolders/{folder}"))["domain"] == "acme"
    await assert_not_shared(api, folder, invitation)
    # The guests do not get their access back when the folder returns to its old domain.
    await transfer(api, folder, "user")
    assert (await admin.get(f"/vfolders/{folder}"))["domain"] == "default"
    await assert_not_shared(api, folder, invitation)


async def test_transfer_within_a_domain_keeps_grants_and_invitations(
    api: Api, admin: Client
) -> None:
    folder, invitation = await shared_folder(api)
    await transfer(api, folder, "domain-admin")
    owner = await api.client("domain-admin")
    grants = (await owner.get(f"/vfolders/{folder}/grants"))["items"]
    assert [grant["user"] for grant in grants] == ["user2"]
    await (await api.client("monitor")).post(f"/vfolder-invitations/{invitation}/accept")


@pytest.mark.parametrize("heir", ["user2", "monitor"])
async def test_new_owner_has_neither_grant_nor_invitation(
    api: Api, admin: Client, heir: str
) -> None:
    folder, _ = await shared_folder(api)
    await transfer(api, folder, heir)
    grants = (await admin.get(f"/vfolders/{folder}/grants"))["items"]
    assert heir not in [grant["user"] for grant in grants]
    query = {"status": "pending", "invitee": heir}
    assert (await admin.get(f"/vfolders/{folder}/invitations", **query))["items"] == []


async def test_folders_follow_their_owner_to_another_domain(api: Api, admin: Client) -> None:
    folder, invitation = await shared_folder(api)
    trashed = (await (await api.client("user")).post("/vfolders", {"name": "old"}))["id"]
    await admin.delete(f"/vfolders/{trashed}")
    await admin.patch("/users/user", {"domain": "acme"})
    for moved in (folder, trashed):
        assert (await admin.get(f"/vfolders/{moved}"))["domain"] == "acme"
    await assert_not_shared(api, folder, invitation)
    domain_admin = await api.client("domain-admin")
    with pytest.raises(NotFound):
        await domain_admin.get(f"/vfolders/{folder}")
    assert (await (await api.client("user")).get("/vfolders/data"))["is_owner"]
    await admin.patch("/users/user", {"domain": "default"})
    await assert_not_shared(api, folder, invitation)


async def test_user_who_leaves_a_domain_loses_the_folders_shared_there(
    api: Api, admin: Client
) -> None:
    folder, invitation = await shared_folder(api)
    for name in ("user2", "monitor"):
        await admin.patch(f"/users/{name}", {"domain": "acme"})
    await assert_not_shared(api, folder, invitation)
    owner = await api.client("user")
    assert (await owner.get(f"/vfolders/{folder}"))["domain"] == "default"
    await admin.patch("/users/user2", {"domain": "default"})
    await assert_not_shared(api, folder, invitation)


async def create_template(client: Client) -> str:
    request = {"environ": {"API_KEY": "hunter2"}}
    return str((await client.post("/session-templates", {"name": "t", "request": request}))["id"])


async def assert_template_is_hidden_from_old_domain(api: Api, template: str) -> None:
    old_admin, owner = await api.client("domain-admin"), await api.client("user")
    with pytest.raises(NotFound):
        await old_admin.get(f"/session-templates/{template}")
    with pytest.raises(NotFound):
        await old_admin.patch(f"/session-templates/{template}", {"request": {}})
    assert (await old_admin.get("/session-templates"))["items"] == []
    assert (await owner.get("/session-templates/t"))["domain"] == "acme"
    await owner.patch("/session-templates/t", {"description": "mine"})


async def test_templates_follow_their_owner_to_another_domain(api: Api, admin: Client) -> None:
    template = await create_template(await api.client("user"))
    old_admin = await api.client("domain-admin")
    assert [one["id"] for one in (await old_admin.get("/session-templates"))["items"]] == [template]
    await admin.patch("/users/user", {"domain": "acme"})
    await assert_template_is_hidden_from_old_domain(api, template)


async def test_old_domain_keeps_the_sessions_of_a_moved_user_without_private_data(
    api: Api, admin: Client
) -> None:
    owner, old_admin = await api.client("user"), await api.client("domain-admin")
    spec = {"name": "lab1", "resources": {"cpu": "1", "mem": "512m"}}
    key = (await owner.post("/sessions", {**spec, "environ": {"API_KEY": "hunter2"}}))["id"]
    assert (await old_admin.get(f"/sessions/{key}"))["environ"] == {"API_KEY": "hunter2"}
    await owner.delete(f"/sessions/{key}")
    await admin.patch("/users/user", {"domain": "acme"})
    # The old domain can still read the session, because the session was charged to that domain.
    session = await old_admin.get(f"/sessions/{key}")
    assert (session["domain"], session["owner"], session["status"]) == (
        "default",
        "user",
        "CANCELLED",
    )
    assert session["hidden_fields"] == ["callback", "environ", "startup_command"]
    assert session["environ"] == {}
    (listed,) = (await old_admin.get("/sessions"))["items"]
    assert listed["environ"] == {}
    with pytest.raises(Forbidden):
        await old_admin.get(f"/sessions/{key}/logs")
    for reader in (owner, admin):
        assert (await reader.get(f"/sessions/{key}"))["environ"] == {"API_KEY": "hunter2"}
        await reader.get(f"/sessions/{key}/logs")


async def test_migration_corrects_folders_and_templates_of_moved_users(
    api: Api, admin: Client
) -> None:
    folder, invitation = await shared_folder(api)
    template = await create_template(await api.client("user"))
    async with api.world.manager.database.write() as tx:
        # Move the user as the code before migration 0019 did: the folder, its grants and the
        # template stay in the old domain.
        await tx.execute(
            sa.update(tables.users).where(tables.users.c.username == "user").values(domain="acme")
        )
        await tx.execute(sa.text("UPDATE alembic_version SET version_num = '0018'"))
    # Run only migration 0019: the schema already contains the changes of later migrations.
    await asyncio.to_thread(schema.upgrade, api.world.manager.settings.database_url, "0019")
    assert (await admin.get(f"/vfolders/{folder}"))["domain"] == "acme"
    await assert_not_shared(api, folder, invitation)
    await assert_template_is_hidden_from_old_domain(api, template)
