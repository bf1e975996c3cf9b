"""Storage hosts: permissions, and folders in existing directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.client import Client
from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.core.folders.mounts import MountRequest
from bai_services.core.folders.storage_hosts import PERMISSIONS
from tests.testbed.manager import SUPERADMIN, Api

from .folder_requests import content_of, invite, put


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def test_unmanaged_folder_uses_an_existing_directory_and_never_deletes_it(
    api: Api, tmp_path: Path
) -> None:
    place = tmp_path / "shared" / "sets"
    place.mkdir(parents=True)
    (place / "f").write_bytes(b"old")
    spec = {"name": "sets", "unmanaged_path": str(place)}
    with pytest.raises(Forbidden):
        await (await api.client("domain-admin")).post("/vfolders", spec)
    admin = await api.client("admin")
    for odd in ("/", "/etc", "relative", f"{place}/../sets", f"{place}/none",
                str(api.world.manager.settings.storage_root)):  # fmt: skip
        with pytest.raises(InvalidRequest):
            await admin.post("/vfolders", {"name": "odd", "unmanaged_path": odd})
    made = await admin.post("/vfolders", spec)
    assert made["unmanaged_path"] == str(place)
    assert await content_of(admin, "f", "sets") == b"old"
    await put(admin, "new", b"x", "sets")
    await admin.delete("/vfolders/sets")
    await admin.post("/vfolders/sets/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (place / "f").read_bytes() == b"old"


@pytest.mark.checklist("SHARE-07")
@pytest.mark.parametrize("permission", PERMISSIONS)
async def test_folder_operation_requires_its_host_permission(api: Api, permission: str) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    domain_admin = await api.client("domain-admin")
    await user.post("/vfolders", {"name": "data", "cloneable": True})
    await put(user, "f", b"x")
    team = await admin.post("/vfolders", {"name": "team", "project": "default/default"})
    await _grant_all_but(api, permission)
    owner, project = await api.world.user_id("user"), await api.world.project_id()
    mounts = api.world.manager.folders.mounts
    calls = {
        "create-vfolder": lambda: user.post("/vfolders", {"name": "other"}),
        "modify-vfolder": lambda: user.patch("/vfolders/data", {"name": "renamed"}),
        "delete-vfolder": lambda: user.delete("/vfolders/data"),
        "mount-in-session": lambda: mounts.resolve_mounts(
            SUPERADMIN, owner, project, [MountRequest("data")]
        ),
        "upload-file": lambda: put(user, "g", b"x"),
        "download-file": lambda: content_of(user, "f"),
        "invite-others": lambda: invite(user, "user2"),
        "set-user-specific-permission": lambda: domain_admin.put(
            f"/vfolders/{team['id']}/grants/user2", {"permission": "ro"}
        ),
    }
    with pytest.raises(Forbidden, match=permission):
        await calls[permission]()
    # The host permissions of all scopes are merged: the project grants the missing permission.
    await admin.patch(f"/projects/{project}", {"allowed_vfolder_hosts": {"local": [permission]}})
    await calls[permission]()


async def _grant_all_but(api: Api, permission: str) -> None:
    admin = await api.client("admin")
    some = {"local": [name for name in PERMISSIONS if name != permission]}
    for domain in (await admin.get("/domains"))["items"]:
        await admin.patch(f"/domains/{domain['name']}", {"allowed_vfolder_hosts": some})
    for policy in (await admin.get("/keypair-policies"))["items"]:
        await admin.patch(f"/keypair-policies/{policy['name']}", {"allowed_vfolder_hosts": some})


async def test_host_list_shows_the_callers_permissions(api: Api, user: Client) -> None:
    (host,) = (await user.get("/storage-hosts"))["items"]
    assert (host["name"], host["backend"], host["status"]) == ("local", "local", "ready")
    assert host["permissions"] == list(PERMISSIONS) and host["path"] is None
    assert host["free_bytes"] > 0
    (seen,) = (await (await api.client("admin")).get("/storage-hosts"))["items"]
    assert seen["path"]
