"""Shares of folders: directly, or after the invited user has accepted."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.mounts import MountRequest
from bai_services.db.folders.grants import GrantStore
from tests.testbed.manager import SUPERADMIN, Api


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


async def mounts_of_new_session(api: Api, username: str, *names: str) -> list[str]:
    """Return the names of the folders that a new session of the user mounts.

    The session requests the folders ``names``; other returned folders are mounted automatically.
    """
    owner, project = await api.world.user_id(username), await api.world.project_id()
    requests = [MountRequest(name) for name in names]
    mounts = await api.world.manager.folders.mounts.resolve_mounts(
        SUPERADMIN, owner, project, requests
    )
    return [mount.vfolder for mount in mounts]


@pytest.mark.parametrize("giver", ["user2", "domain-admin", "admin"])
async def test_shared_dot_folder_is_not_mounted_automatically(
    api: Api, user: Client, giver: str
) -> None:
    client = await api.client(giver)
    for name in ("data", ".local"):
        folder = await client.post("/vfolders", {"name": name})
        path = f"/vfolders/{folder['id']}"
        grant = await client.put(f"{path}/grants/user", {"permission": "rw"})
        assert grant["is_pending"]
        assert (await client.get(f"{path}/grants/user"))["is_pending"]
        assert (await client.get(f"{path}/grants"))["items"] == []
        with pytest.raises(NotFound):
            await user.get(path)
        with pytest.raises(NotFound):
            await mounts_of_new_session(api, "user", folder["id"])
    assert await mounts_of_new_session(api, "user") == []
    received = await user.get("/vfolder-invitations", status="pending", sort="vfolder")
    assert [item["vfolder"] for item in received["items"]] == [".local", "data"]
    for item in received["items"]:
        await user.post(f"/vfolder-invitations/{item['id']}/accept")
    # After the user has accepted, a session can mount the folder on request, but the folder is not
    # mounted automatically.
    assert await mounts_of_new_session(api, "user") == []
    assert await mounts_of_new_session(api, "user", "data") == ["data"]


async def test_pending_share_can_be_changed_and_withdrawn(api: Api, user: Client) -> None:
    guest = await api.client("user2")
    await user.post("/vfolders", {"name": "data"})
    path = "/vfolders/data/grants/user2"
    offer = await user.put(path, {"permission": "ro"})
    again = await user.put(path, {"permission": "rw"})
    assert (again["invitation_id"], again["permission"]) == (offer["invitation_id"], "rw")
    await user.delete(path)
    with pytest.raises(NotFound):
        await user.get(path)
    with pytest.raises(Conflict, match="canceled"):
        await guest.post(f"/vfolder-invitations/{offer['invitation_id']}/accept")
    third = await user.put(path, {"permission": "ro"})
    await guest.post(f"/vfolder-invitations/{third['invitation_id']}/decline")
    with pytest.raises(NotFound):
        await guest.get("/vfolders/data")


async def test_grant_created_without_an_invitation_is_valid(api: Api, user: Client) -> None:
    folder = await user.post("/vfolders", {"name": "data"})
    now = api.world.clock()
    values = {
        "vfolder_id": folder["id"],
        "user_id": await api.world.user_id("user2"),
        "created_at": now,
        "permission": "ro",
        "granted_by": "user",
    }
    entry = AuditEntry(now, "user", "vfolder.share", "vfolder", folder["id"])
    await GrantStore(api.world.manager.database).grant(values, entry)
    guest = await api.client("user2")
    assert (await guest.get("/vfolders/data"))["permission"] == "ro"
    changed = await user.put("/vfolders/data/grants/user2", {"permission": "rw"})
    assert not changed["is_pending"]
    assert (await guest.get("/vfolders/data"))["permission"] == "rw"


async def test_project_members_get_grants_without_invitation(api: Api) -> None:
    admin = await api.client("domain-admin")
    await (await api.client("admin")).delete("/projects/default/members/user2")
    made = await admin.post("/vfolders", {"name": "team", "project": "default"})
    path = f"/vfolders/{made['id']}/grants"
    assert not (await admin.put(f"{path}/user", {"permission": "ro"}))["is_pending"]
    offer = await admin.put(f"{path}/user2", {"permission": "ro"})
    assert offer["is_pending"]
    guest = await api.client("user2")
    with pytest.raises(NotFound):
        await guest.get(f"/vfolders/{made['id']}")
    await guest.post(f"/vfolder-invitations/{offer['invitation_id']}/accept")
    assert (await guest.get(f"/vfolders/{made['id']}"))["permission"] == "ro"


async def test_grant_to_oneself_needs_no_invitation(api: Api, user: Client) -> None:
    folder = await user.post("/vfolders", {"name": "data"})
    admin = await api.client("domain-admin")
    path = f"/vfolders/{folder['id']}/grants/domain-admin"
    assert not (await admin.put(path, {"permission": "ro"}))["is_pending"]


async def test_only_the_owner_may_rename_a_folder_to_a_dot_name(api: Api, user: Client) -> None:
    folder = await user.post("/vfolders", {"name": "data"})
    path = f"/vfolders/{folder['id']}"
    admin = await api.client("admin")
    with pytest.raises(Forbidden, match="only user may"):
        await admin.patch(path, {"name": ".local"})
    await user.patch(path, {"name": ".local"})
    assert await mounts_of_new_session(api, "user") == [".local"]
    with pytest.raises(InvalidRequest, match="rename it first"):
        await admin.put(f"{path}/owner", {"user": "user2"})
    # A superadmin may transfer a folder with a dot name to their own account.
    await admin.put(f"{path}/owner", {"user": "admin"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (await admin.get(path))["owner"] == "admin"


async def invited(owner: Client, guest: str, name: str = "data") -> tuple[str, str]:
    """Create a folder and invite a user; return the paths of the folder and of the invitation."""
    folder = await owner.post("/vfolders", {"name": name})
    offer = await owner.put(f"/vfolders/{folder['id']}/grants/{guest}", {"permission": "rw"})
    return f"/vfolders/{folder['id']}", f"/vfolder-invitations/{offer['invitation_id']}"


async def test_invitation_cannot_be_accepted_if_the_invitee_has_a_folder_of_the_same_name(
    api: Api, user: Client
) -> None:
    path, invitation = await invited(user, "user2")
    guest = await api.client("user2")
    own = await guest.post("/vfolders", {"name": "data"})
    with pytest.raises(AlreadyExists, match="you already have a folder named data"):
        await guest.post(f"{invitation}/accept")
    assert (await guest.get(invitation))["status"] == "pending"
    with pytest.raises(NotFound):
        await guest.get(path)
    await guest.patch(f"/vfolders/{own['id']}", {"name": "old-data"})
    assert (await guest.post(f"{invitation}/accept"))["status"] == "accepted"
    assert f"/vfolders/{(await guest.get('/vfolders/data'))['id']}" == path


async def test_name_of_several_shared_folders_is_ambiguous_without_an_own_folder(
    api: Api, user: Client
) -> None:
    guest = await api.client("user2")
    for owner in (user, await api.client("domain-admin")):
        _, invitation = await invited(owner, "user2")
        await guest.post(f"{invitation}/accept")
    for ask in (guest.get("/vfolders/data"), mounts_of_new_session(api, "user2", "data")):
        with pytest.raises(Conflict, match="use the id") as caught:
            await ask
        owners = {candidate["owner"] for candidate in caught.value.details["candidates"]}
        assert owners == {"user", "domain-admin"}
    own = await guest.post("/vfolders", {"name": "data"})
    assert (await guest.get("/vfolders/data"))["id"] == own["id"]
    owner_id, project = await api.world.user_id("user2"), await api.world.project_id()
    (mount,) = await api.world.manager.folders.mounts.resolve_mounts(
        SUPERADMIN, owner_id, project, [MountRequest("data")]
    )
    assert mount.vfolder_id == own["id"]
