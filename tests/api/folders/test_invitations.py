"""Invitations to folders: who may accept them, who can be invited, and grants to members."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core.errors import AlreadyExists, Conflict, Forbidden, InvalidRequest, NotFound
from tests.testbed.manager import Api

from .folder_requests import invite, put


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def test_only_the_invitee_may_accept_an_invitation(api: Api, user: Client) -> None:
    guest = await api.client("user2")
    made = await invite(user, "user2", "rw")
    assert (made["status"], made["inviter"], made["owner"]) == ("pending", "user", "user")
    with pytest.raises(NotFound):
        await guest.get("/vfolders/data")
    with pytest.raises(AlreadyExists):
        await invite(user, "user2")
    received = await guest.get("/vfolder-invitations", status="pending")
    assert [item["vfolder"] for item in received["items"]] == ["data"]
    with pytest.raises(Forbidden):
        await user.post(f"/vfolder-invitations/{made['id']}/accept")
    changed = await user.patch(f"/vfolder-invitations/{made['id']}", {"permission": "ro"})
    assert changed["permission"] == "ro"
    done = await guest.post(f"/vfolder-invitations/{made['id']}/accept")
    assert done["status"] == "accepted"
    assert (await guest.get("/vfolders/data"))["permission"] == "ro"
    with pytest.raises(Conflict, match="already accepted"):
        await guest.post(f"/vfolder-invitations/{made['id']}/decline")
    with pytest.raises(AlreadyExists, match="already has access"):
        await invite(user, "user2")
    # A grantee may delete their own grant and may then be invited again.
    await guest.delete("/vfolders/data/grants/user2")
    with pytest.raises(NotFound):
        await guest.get("/vfolders/data")
    again = await invite(user, "user2")
    await guest.post(f"/vfolder-invitations/{again['id']}/decline")
    third = await invite(user, "user2")
    await user.delete(f"/vfolder-invitations/{third['id']}")
    listed = await user.get("/vfolders/data/invitations", sort="created_at")
    assert sorted(item["status"] for item in listed["items"]) == [
        "accepted", "canceled", "rejected",
    ]  # fmt: skip
    log = await (await api.client("admin")).get("/audit-log", entity="vfolder", limit=100)
    actions = {item["action"] for item in log["items"]}
    assert {"vfolder.invite", "vfolder.accept-invitation", "vfolder.decline-invitation",
            "vfolder.withdraw-invitation", "vfolder.unshare"} <= actions  # fmt: skip


async def test_invitation_of_invalid_user_is_rejected(api: Api, user: Client) -> None:
    for name, error in (("user", InvalidRequest), ("nobody", NotFound), ("acme-user", NotFound)):
        with pytest.raises(error):
            await invite(user, name)
    admin = await api.client("domain-admin")
    team = await admin.post("/vfolders", {"name": "team", "project": "default"})
    with pytest.raises(InvalidRequest, match="without an invitation"):
        await admin.post(f"/vfolders/{team['id']}/invitations", {"user": "user"})


@pytest.mark.checklist("SHARE-04")
async def test_user_with_a_folder_of_the_same_name_cannot_be_invited(
    api: Api, user: Client
) -> None:
    guest = await api.client("user2")
    own = await guest.post("/vfolders", {"name": "data"})
    for shares in (
        lambda: invite(user, "user2"),
        lambda: user.put("/vfolders/data/grants/user2", {"permission": "ro"}),
    ):
        with pytest.raises(AlreadyExists, match="already has a folder named data"):
            await shares()
    assert (await guest.get("/vfolder-invitations"))["items"] == []
    # The name of a folder in the trash is free.
    await guest.delete(f"/vfolders/{own['id']}")
    assert (await invite(user, "user2"))["status"] == "pending"


@pytest.mark.checklist("SHARE-06")
async def test_grant_lowers_the_permission_of_a_project_member(api: Api) -> None:
    admin, member = await api.client("domain-admin"), await api.client("user")
    team = await admin.post("/vfolders", {"name": "team", "project": "default"})
    assert (await member.get(f"/vfolders/{team['id']}"))["permission"] == "rw"
    await admin.put(f"/vfolders/{team['id']}/grants/user", {"permission": "ro"})
    assert (await member.get(f"/vfolders/{team['id']}"))["permission"] == "ro"
    with pytest.raises(Forbidden):
        await put(member, "f", b"x", team["id"])
